"""Classifiers and detectors as pipelines, equal to transformers': its processor, its model, its post-preprocessor."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from PIL import Image

import webpte
from tests.support.harness.errors import check, raises
from tests.support.harness.gate import slow_but
from tests.support.models import task_checkpoints
from tests.support.models.task_checkpoints import PROCESSORS, exported
from webpte.errors import FormatError, InputError, UnsupportedError
from webpte.export import export_checkpoint
from webpte.export.vision import read_processor
from webpte.image_files import open_image
from webpte.task_file import TaskFile, task_path
from webpte.vision import Classifier, Detector
from webpte.vision.images import read_preprocessor

SIZES = [(37, 53), (100, 31), (31, 100), (64, 64), (20, 20), (500, 333), (48, 60), (60, 48), (80, 200), (17, 900)]
# Each export takes its time.
CLASSIFIERS = slow_but(["vit"], ["vit", "swin", "resnet", "mobilenet_v2"])
DETECTORS = slow_but(["yolos"], ["yolos", "detr"])


def picture(height: int, width: int) -> Image.Image:
    """Patches of color: what a resize does to it depends on its filter everywhere."""
    rng = np.random.default_rng(height * 1000 + width)
    return Image.fromarray(rng.integers(0, 256, (height, width, 3), dtype=np.uint8))


PICTURES = [picture(*size) for size in [(37, 53), (100, 31), (64, 64), (20, 24), (90, 120)]]


@pytest.mark.parametrize("name", PROCESSORS)
def test_image_processor_equals_transformers_bits(name, tmp_path):
    processor = PROCESSORS[name]()
    processor.save_pretrained(tmp_path)
    preprocessor = read_preprocessor(TaskFile("task.json", read_processor(tmp_path)))
    for size in SIZES:
        got, (height, width) = preprocessor(picture(*size))
        want = processor(picture(*size), return_tensors="np")
        np.testing.assert_array_equal(got, want["pixel_values"][0])
        assert got.dtype == np.float32 and got.shape == (3, *preprocessor.frame)
        if "pixel_mask" in want:
            mask = np.zeros(preprocessor.frame, np.int64)
            mask[:height, :width] = 1
            np.testing.assert_array_equal(mask, want["pixel_mask"][0])


def of_transformers(name, auto):
    """Return its processor and its model."""
    import transformers as hf

    folder = exported(name) / "checkpoint"
    model = getattr(hf, auto).from_pretrained(folder).eval()
    return hf.AutoImageProcessor.from_pretrained(folder, backend="pil"), model


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_classifier_equals_transformers(name):
    import torch

    processor, model = of_transformers(name, "AutoModelForImageClassification")
    with torch.no_grad():
        logits = model(**processor(PICTURES, return_tensors="pt")).logits
    want = logits.softmax(-1).numpy()
    assert logits.std() > 0.1  # classes differ
    with Classifier.load(exported(name) / "model.pte") as classifier:
        got = classifier.scores(PICTURES)
        assert got.dtype == np.float32 and np.abs(got - want).max() < 1e-4
        actual = classifier(PICTURES, top=3)
        assert [[one.class_id for one in row] for row in actual] == np.argsort(-got, axis=1)[:, :3].tolist()
        best = actual[2][0]
        assert (best.label, best.class_id) == (model.config.id2label[best.class_id], want[2].argmax())
        assert abs(best.score - want[2].max()) < 1e-4
        assert classifier.max_batch > 1 and len(classifier([PICTURES[0]], top=99)[0]) == 7
        alone = np.concatenate([classifier.scores([one]) for one in PICTURES])
        assert np.abs(got - alone).max() < 1e-6
        assert classifier([]) == []


@pytest.mark.parametrize("name", DETECTORS)
def test_detector_equals_transformers(name):
    import torch

    processor, model = of_transformers(name, "AutoModelForObjectDetection")
    threshold, seen = 0.1, 0
    with Detector.load(exported(name) / "model.pte") as detector:
        for image, actual in zip(PICTURES, detector(PICTURES, threshold=threshold), strict=True):
            with torch.no_grad():
                outputs = model(**processor(image, return_tensors="pt"))
            (want,) = processor.post_process_object_detection(outputs, threshold, [(image.height, image.width)])
            order = want["scores"].argsort(descending=True)
            assert [one.class_id for one in actual] == want["labels"][order].tolist()
            assert [one.label for one in actual] == [model.config.id2label[one.class_id] for one in actual]
            scores, boxes = ([getattr(one, key) for one in actual] for key in ("score", "box"))
            assert np.abs(np.array(scores) - want["scores"][order].numpy()).max(initial=0) < 1e-4
            relative = np.array(boxes).reshape(-1, 4) / ([image.width, image.height] * 2)
            expected = want["boxes"][order].numpy() / ([image.width, image.height] * 2)
            assert np.abs(relative - expected).max(initial=0) < 1e-4
            seen += len(actual)
        assert seen >= len(PICTURES)  # a threshold that lets something through
        assert detector(PICTURES[:1], threshold=1.0) == [[]]


def test_images_accept_paths_images_arrays(tmp_path):
    image = picture(40, 50)
    turned = Image.fromarray(np.asarray(image)[:, ::-1])  # as a camera saves it that was held otherwise
    exif = Image.Exif()
    exif[0x0112] = 2
    turned.save(tmp_path / "turned.png", exif=exif)
    image.save(tmp_path / "plain.png")
    clear = image.convert("RGBA")
    values = [
        image,
        tmp_path / "plain.png",
        str(tmp_path / "plain.png"),
        (tmp_path / "plain.png").read_bytes(),
        np.asarray(image),
        tmp_path / "turned.png",
        clear,
    ]
    with Classifier.load(exported("vit") / "model.pte") as classifier:
        scores = classifier.scores(values)
        assert (scores == scores[0]).all()
        grey = classifier.scores([image.convert("L"), image.convert("L").convert("RGB")])
        assert (grey[0] == grey[1]).all()


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "LA", "PA", "P", "L", "CMYK"])
def test_transparent_images_are_those_of_transformers(mode):
    from transformers.image_transforms import convert_to_rgb

    image = picture(20, 30).convert("RGBA")
    image.putalpha(Image.fromarray(np.random.default_rng(2).integers(0, 256, (20, 30), np.uint8)))
    image = image.convert("P" if mode == "PA" else mode).convert(mode)  # Pillow has no shorter way
    assert (np.asarray(open_image(image, "image")) == convert_to_rgb(image, return_numpy=True)).all()


WRONG: list[tuple[Any, str | None, list[str]]] = [
    ("plain.png", None, ["images", "'plain.png'"]),
    (["absent.png"], "unreadable", ["images[0]", "'absent.png'"]),
    ([b"png"], "unreadable", ["images[0]", "3 bytes"]),
    ([picture(4, 4), 3], None, ["images[1]", "PIL", "got 3"]),
    ([np.zeros((4, 4, 3))], None, ["images[0]", "float64 [4, 4, 3]"]),
    ([np.zeros((3, 4, 4), np.uint8)], None, ["images[0]", "uint8 [3, 4, 4]"]),
    ([np.zeros((0, 4, 3), np.uint8)], None, ["images[0]", "uint8 [0, 4, 3]"]),
    (picture(4, 4), None, ["images", "['cat.jpg']"]),
]


def test_vision_wrong_call_raises_and_stays_usable(tmp_path):
    (tmp_path / "text.png").write_text("no picture")
    with Classifier.load(exported("vit") / "model.pte") as classifier:
        for images, code, values in [*WRONG, ([tmp_path / "text.png"], "unreadable", ["images[0]", "text.png"])]:
            with raises(InputError, *values, code=code):
                classifier(images)
        tops: list[Any] = [0, 2.5, True, None]
        for top in tops:
            with raises(InputError, "top", repr(top)):
                classifier([PICTURES[0]], top=top)
        assert len(classifier([PICTURES[0]])[0]) == 5
    with Detector.load(exported("yolos") / "model.pte") as detector:
        thresholds: list[Any] = [-0.1, 1.1, "high", float("nan"), True, None]
        for threshold in thresholds:
            with raises(InputError, "threshold", "0 to 1", repr(threshold)):
                detector([PICTURES[0]], threshold=threshold)
        assert detector([PICTURES[0]], threshold=1) == [[]]


def test_vision_mixed_files_of_two_exports_are_refused(tmp_path):
    program = tmp_path / "model.pte"
    program.symlink_to(exported("vit") / "model.pte")
    with raises(InputError, "model.task.json", "webpte export"):
        Classifier.load(program)
    task = json.loads(task_path(exported("vit") / "model.pte").read_text())
    task_path(program).write_text(json.dumps(task | {"labels": ["only"]}))
    with raises(FormatError, "model.pte", code="other_export"):
        Classifier.load(program)
    task_path(program).write_text(json.dumps(task | {"std": [1, 0, 1]}))
    with raises(FormatError, "model.task.json", "std", "(1.0, 0.0, 1.0)"):
        Classifier.load(program)
    task_path(program).write_text(json.dumps(task))
    with raises(InputError, "model.task.json", "'image classification'", "'object detection'"):
        Detector.load(program)
    with Classifier.load(program) as classifier:
        assert len(classifier.labels) == 7


# ---------------------------------------------------------------- what is not understood is refused


@pytest.fixture
def checkpoint(tmp_path):
    """Return a folder that says it is a ViT; no test here comes to its weights."""
    config = task_checkpoints.vision("vit").config
    config.architectures = ["ViTForImageClassification"]
    config.save_pretrained(tmp_path)
    PROCESSORS["vit"]().save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").touch()
    return tmp_path


def edit(path, **fields):
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


@pytest.mark.parametrize(
    ("fields", "error", "values"),
    [
        ({"image_processor_type": "BeitImageProcessor"}, UnsupportedError, ["image_processor_type", "BeitImage"]),
        ({"do_flip_channel_order": True}, UnsupportedError, ["do_flip_channel_order"]),
        ({"rescale_offset": True}, UnsupportedError, ["rescale_offset"]),
        ({"size": {"max_height": 32, "max_width": 32}}, UnsupportedError, ["size", "max_height", "max_width"]),
        ({"size": {"shortest_edge": 32}}, InputError, ["image_size", "--image-size", "shortest_edge"]),
        ({"do_resize": False}, InputError, ["image_size", "--image-size"]),
        ({"image_mean": [0.5]}, UnsupportedError, ["image_mean", "(0.5,)"]),
    ],
)
def test_vision_unknown_processor_is_refused(checkpoint, fields, error, values):
    edit(checkpoint / "preprocessor_config.json", **fields)
    with raises(error, "preprocessor_config.json", *values):
        export_checkpoint(checkpoint, checkpoint / "out.pte")
    assert not (checkpoint / "out.pte").exists()


@pytest.mark.parametrize(
    ("fields", "item", "values"),
    [
        ({"model_type": "beit"}, "model_type", ["beit", "vit"]),
        ({"auto_map": {"AutoModel": "modeling.Own"}}, "auto_map", ["auto_map"]),
        ({"quantization_config": {"bits": 4}}, "quantization_config", []),
        ({"architectures": ["BeitForObjectDetection"]}, "model_type", ["vit", "detr, yolos"]),
    ],
)
def test_vision_unknown_model_is_refused(checkpoint, fields, item, values):
    edit(checkpoint / "config.json", **fields)
    with pytest.raises(UnsupportedError) as caught:
        export_checkpoint(checkpoint, checkpoint / "out.pte")
    check(caught.value, "config.json", *values)
    assert caught.value.items == (item,)


def test_options_are_checked_before_any_work(checkpoint):
    for wrong in (0, True, 2.5):
        with raises(InputError, "max_batch", repr(wrong)):
            export_checkpoint(checkpoint, checkpoint / "out.pte", max_batch=wrong)
    with raises(InputError, "'image classifier'", "quantize", "max_batch"):
        export_checkpoint(checkpoint, checkpoint / "out.pte", quantize="4w")
    sizes: list[Any] = ["480", "0x5", "axb", (1,), (1.5, 2), 480, ("a", "b")]
    for size in sizes:
        with raises(InputError, "image_size", '"480x640"', repr(size)):
            webpte.export.export_detector(checkpoint, checkpoint / "out.pte", image_size=size)
    (checkpoint / "preprocessor_config.json").unlink()
    with raises(FormatError, "preprocessor_config.json"):
        export_checkpoint(checkpoint, checkpoint / "out.pte")


def test_incomplete_weights_are_refused(tmp_path):
    from safetensors.torch import load_file, save_file

    task_checkpoints.write_vision(tmp_path, "vit")
    weights = load_file(tmp_path / "model.safetensors")
    del weights["classifier.bias"]
    save_file(weights, tmp_path / "model.safetensors", {"format": "pt"})
    with raises(FormatError, "['classifier.bias']"):
        export_checkpoint(tmp_path, tmp_path / "out.pte")


def test_detector_variable_image_size_requires_one(tmp_path):
    import transformers as hf

    hf.YolosImageProcessorPil(size={"shortest_edge": 32, "longest_edge": 64}).save_pretrained(tmp_path)
    with raises(InputError, "preprocessor_config.json", "--image-size"):
        read_processor(tmp_path)
    stretched = read_processor(tmp_path, (32, 48))
    assert (stretched["resize"], stretched["size"], stretched["pad"]) == ("exact", [32, 48], None)
