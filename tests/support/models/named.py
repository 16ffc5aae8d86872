"""The larger programs our export tier runs: models with real weights, and architectures of `transformers`.

No torch here: a name must be resolvable with a warm cache.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

from .packages import FACENET, MINILM, Package
from .programs import PROGRAMS, Entry

# Read by all-MiniLM-L6-v2's tokenizer they have 20 different lengths, from 4 to the bound of 127 tokens.
SENTENCES = (
    "Hello!",
    "It rains.",
    "Where is the station?",
    "The cat sleeps on the warm windowsill.",
    "Prices rose by 3.5% in March, economists said.",
    "She has been learning to play the violoncello since last autumn.",
    "Please restart the router, wait thirty seconds, and then try to connect again.",
    "Photosynthesis turns light, water and carbon dioxide into sugar and oxygen inside the leaves of green plants.",
    "The train to Zürich leaves at 07:42 from platform nine; passengers without a reservation should board the "
    "last two carriages, please.",
    "How do I convert a list of dictionaries into a single dictionary in Python without losing the values of "
    "duplicate keys?",
    "After the storm had passed, the fishermen walked down to the harbour and counted the boats that were still "
    "afloat, while their children collected driftwood.",
    "Although the committee had promised to publish its findings before the end of the year, the report was "
    "delayed twice because two of the laboratories had used incompatible measuring procedures.",
    "To bake the bread, mix flour, water, salt and a little sourdough starter, let the mixture rest overnight, "
    "fold it gently in the morning, shape a round loaf, and bake it in a very hot, closed pot for forty minutes.",
    "The Treaty of Westphalia, signed in 1648 in Osnabrück and Münster, ended the Thirty Years' War in the Holy "
    "Roman Empire and is often said to have laid the foundation of the modern system of sovereign states, though "
    "historians disagree.",
    "A graphics processor hides the latency of its memory by keeping thousands of threads in flight: whenever one"
    " group of them waits for data, the scheduler lets another group compute, so that throughput stays high "
    "although each single access is slow.",
    "Dear customer, we are sorry to hear that your parcel arrived damaged. Please send us a photograph of the box"
    " and of the broken parts within fourteen days; we will then either replace the goods free of charge or "
    "refund the full purchase price, including postage.",
    "In the beginning the village had only one well, and everybody met there at dawn; later, when every house had"
    " running water, the old women still carried their buckets to the square, because, as they said, news does "
    "not come out of a tap, and loneliness is heavier than any bucket you could ever fill.",
    "Bats navigate in complete darkness by emitting ultrasonic calls and listening to the echoes; from the delay "
    "they infer the distance of an obstacle, from the difference between both ears its direction, and from the "
    "shift in frequency whether a moth is flying towards them or away, all within a few thousandths of a second.",
    "The patient, a 54-year-old woman with a history of hypertension and type 2 diabetes, presented with "
    "intermittent chest pain radiating to the left arm; the electrocardiogram showed no ST elevation, troponin "
    "was slightly raised, and after consultation with cardiology she was admitted for observation and started on "
    "aspirin and heparin. No further complaints were reported overnight, and she was discharged three days later "
    "with advice to stop smoking, walk daily, and return in a month.",
    "If you want to travel slowly across the continent, buy a rail pass, pack a single bag, and do not plan more "
    "than two days ahead: the best afternoons are those in which a missed connection leaves you in a town you had"
    " never heard of, with a market, a river, a bench in the shade, and nothing at all to do until the evening "
    "train rolls in under the lamps. You will be tired, you will be late, and you will remember the smell of the "
    "bread and the colour of the hills long after you have forgotten the names of all the cathedrals that you had"
    " marked on your map.",
)


@dataclass(frozen=True)
class Architecture:
    """A model that `transformers` builds from a small config, with seeded random weights."""

    kind: str
    file: str  # of its builder

    def entry(self, name: str) -> Entry:
        params = {"name": name, "transformers": installed("transformers")}
        return Entry(self.file, "build", params)


def installed(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def pinned(package: Package) -> str:
    return f"{package.name} {package.version}"


REAL = {
    "minilm": Entry(
        "real",
        "minilm",
        {"sentences": list(SENTENCES), "package": pinned(MINILM), "transformers": installed("transformers")},
    ),
    # Sizes and batches: the bound first, then what is traced with, then others.
    "mtcnn_pnet": Entry(
        "real",
        "pnet",
        {"package": pinned(FACENET), "sizes": [[120, 160], [61, 83], [13, 38], [100, 14]], "padded": True},
    ),
    "mtcnn_pnet_ceil": Entry(
        "real",
        "pnet",
        {"package": pinned(FACENET), "sizes": [[119, 161], [61, 83], [13, 37], [101, 15]], "padded": False},
    ),
    "mtcnn_rnet": Entry("real", "rnet", {"package": pinned(FACENET), "batches": [13, 5, 1, 11]}),
    "mtcnn_onet": Entry("real", "onet", {"package": pinned(FACENET), "batches": [8, 3, 1, 7]}),
}

REAL_KINDS = {name: "sentence encoder" if name == "minilm" else "face detector" for name in REAL}

TEXT, VISION, AUDIO = (f"transformers_{part}" for part in ("text", "vision", "audio"))
ARCHITECTURES = {
    "bert": Architecture("text encoder", TEXT),
    "roberta": Architecture("text encoder", TEXT),
    "mpnet": Architecture("text encoder", TEXT),
    "deberta": Architecture("text encoder", TEXT),
    "t5_encoder": Architecture("text encoder", TEXT),
    "gpt2": Architecture("language model", TEXT),
    "llama": Architecture("language model", TEXT),
    "gemma3": Architecture("language model", TEXT),
    "clip_text": Architecture("text-image embedding", TEXT),
    "clip_vision": Architecture("text-image embedding", VISION),
    "vit": Architecture("image classifier", VISION),
    "swin": Architecture("image classifier", VISION),
    "convnext": Architecture("image classifier", VISION),
    "resnet": Architecture("CNN backbone", VISION),
    "mobilenet_v2": Architecture("CNN backbone", VISION),
    "segformer": Architecture("segmentation", VISION),
    "glpn": Architecture("depth", VISION),
    "dpt": Architecture("depth", VISION),
    "yolos": Architecture("detection", VISION),
    "wav2vec2": Architecture("speech", AUDIO),
    "whisper_encoder": Architecture("speech", AUDIO),
}

# Those whose exports the gate waits for, of each sort of model one or two.
IN_THE_GATE = ("roberta", "vit", "resnet", "yolos", "whisper_encoder")
SLOW = {f"hf_{name}" for name in ARCHITECTURES if name not in IN_THE_GATE}

# SmolLM2 as far as shapes go: what a tiny model spares a path, its widths and its vocabulary do not.
WIDE = {"smollm_1": Entry("real_widths", "smollm", {"layers": 1})}

NAMED = PROGRAMS | REAL | WIDE | {f"hf_{name}": a.entry(name) for name, a in ARCHITECTURES.items()}
