"""Draw a picture with three faces, faces.png, for detect.py.

pip install pillow
python draw.py
"""

from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFilter

WIDTH, HEIGHT = 320, 240
# Left, top and size of a face, then the colors of skin and hair.
FACES = (
    (24, 44, 140, (224, 180, 150), (60, 40, 25)),
    (196, 16, 104, (150, 105, 80), (25, 20, 20)),
    (206, 136, 84, (240, 205, 180), (150, 110, 50)),
)
Color = tuple[int, int, int]


def draw_face(size: int, skin: Color, hair: Color) -> Image.Image:
    """Drawn four times as large and scaled down: smooth edges."""
    large = size * 4
    image = Image.new("RGBA", (large, large))
    draw = ImageDraw.Draw(image)

    def oval(x: float, y: float, half_width: float, half_height: float, color: Color) -> None:
        edges = (x - half_width, y - half_height, x + half_width, y + half_height)
        draw.ellipse(tuple(edge * large for edge in edges), fill=color)

    shadow = (skin[0] * 7 // 10, skin[1] * 7 // 10, skin[2] * 7 // 10)
    draw.rectangle((0.4 * large, 0.8 * large, 0.6 * large, large), fill=shadow)  # the neck
    oval(0.5, 0.45, 0.40, 0.44, hair)
    oval(0.5, 0.52, 0.32, 0.40, skin)
    for x in (0.37, 0.63):
        draw.arc(((x - 0.09) * large, 0.38 * large, (x + 0.09) * large, 0.46 * large), 200, 340, hair, large // 45)
        oval(x, 0.47, 0.075, 0.040, (245, 245, 245))
        oval(x, 0.47, 0.035, 0.038, (60, 40, 30))
    oval(0.5, 0.60, 0.045, 0.060, shadow)
    oval(0.495, 0.585, 0.035, 0.055, skin)
    oval(0.5, 0.74, 0.11, 0.035, (170, 70, 70))
    draw.line((0.4 * large, 0.74 * large, 0.6 * large, 0.74 * large), (110, 40, 40), large // 90)
    return image.resize((size, size), Image.Resampling.LANCZOS)


def draw_picture() -> Image.Image:
    down = np.linspace(0, 1, HEIGHT)[:, None, None]
    sky = (1 - down) * np.array([150, 180, 210]) + down * np.array([210, 160, 130])  # (H, 1, 3)
    picture = Image.fromarray(np.broadcast_to(sky, (HEIGHT, WIDTH, 3)).astype(np.uint8))
    for left, top, size, skin, hair in FACES:
        face = draw_face(size, skin, hair)
        picture.paste(face, (left, top), face)
    return picture.filter(ImageFilter.GaussianBlur(0.8))


if __name__ == "__main__":
    draw_picture().save(Path("faces.png"))
