"""Drawings as SVG that take the colors of the page they stand in, and have their own where they stand alone."""

from __future__ import annotations

from html import escape

# Kinds of things, in tones that are distinguishable on white and on black.
COLORS = {
    "blue": "#2f81f7",
    "green": "#2ea36a",
    "orange": "#d4872c",
    "violet": "#8b6be0",
    "red": "#d1495b",
    "grey": "#8a93a0",
}


class Drawing:
    """A sheet of `width` and `height`. `name` keeps its styles from reaching other drawings of the page."""

    def __init__(self, name: str, width: float, height: float, title: str, text: str) -> None:
        self.name, self.width, self.height = name, width, height
        self.title, self.about = title, text
        self.parts: list[str] = []

    def text(self, x: float, y: float, text: str, kind: str = "", anchor: str = "start") -> None:
        self.parts.append(f'<text x="{x:g}" y="{y:g}" class="{kind}" text-anchor="{anchor}">{escape(text)}</text>')

    def box(
        self, x: float, y: float, width: float, height: float, color: str = "grey", kind: str = "soft", tip: str = ""
    ) -> None:
        title = f"<title>{escape(tip)}</title>" if tip else ""
        self.parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="3" '
            f'class="{kind} {color}">{title}</rect>'
        )

    def line(self, path: str, kind: str = "line", color: str = "") -> None:
        self.parts.append(f'<path d="{path}" class="{kind} {color}"/>')

    def arrow(self, x: float, y: float, length: float) -> None:
        """To the right, from (x, y)."""
        end = x + length
        self.line(f"M{x:g},{y:g} H{end:g} M{end - 6:g},{y - 4:g} L{end:g},{y:g} L{end - 6:g},{y + 4:g}", "arrow")

    def arrow_left(self, x: float, y: float, length: float) -> None:
        """To the left, from (x, y)."""
        end = x - length
        self.line(f"M{x:g},{y:g} H{end:g} M{end + 6:g},{y - 4:g} L{end:g},{y:g} L{end + 6:g},{y + 4:g}", "arrow")

    def arrow_down(self, x: float, y: float, length: float) -> None:
        """Downwards, from (x, y)."""
        end = y + length
        self.line(f"M{x:g},{y:g} V{end:g} M{x - 4:g},{end - 6:g} L{x:g},{end:g} L{x + 4:g},{end - 6:g}", "arrow")

    def arrow_up(self, x: float, y: float, length: float) -> None:
        """Upwards, from (x, y)."""
        end = y - length
        self.line(f"M{x:g},{y:g} V{end:g} M{x - 4:g},{end + 6:g} L{x:g},{end:g} L{x + 4:g},{end + 6:g}", "arrow")

    def svg(self) -> str:
        name = self.name
        tones = "\n".join(f"    .{name} .{color} {{ fill: {tone}; stroke: {tone}; }}" for color, tone in COLORS.items())
        parts = "\n".join(f"  {part}" for part in self.parts)
        return f"""\
<svg xmlns="http://www.w3.org/2000/svg" class="{name}" viewBox="0 0 {self.width:g} {self.height:g}" role="img"
  aria-labelledby="{name}-title {name}-text">
  <title id="{name}-title">{escape(self.title)}</title>
  <desc id="{name}-text">{escape(self.about)}</desc>
  <style>
    svg.{name} {{ width: 100%; height: auto; font: 13px system-ui, "DejaVu Sans", sans-serif; }}
    svg.{name}:root {{ color: #1b1f24; background: #fff; }}
    @media (prefers-color-scheme: dark) {{ svg.{name}:root {{ color: #d6dae0; background: #131416; }} }}
    .{name} text {{ fill: currentColor; }}
    .{name} .head {{ font-weight: 600; font-size: 14px; }}
    .{name} .small {{ font-size: 11px; opacity: 0.75; }}
    .{name} .code {{ font: 12px ui-monospace, "DejaVu Sans Mono", monospace; }}
    .{name} .pale {{ opacity: 0.55; }}
{tones}
    .{name} .soft {{ fill-opacity: 0.16; stroke-opacity: 0.8; }}
    .{name} .full {{ fill-opacity: 0.8; stroke: none; }}
    .{name} .free {{ fill-opacity: 0; stroke-opacity: 0.6; stroke-dasharray: 4 3; }}
    .{name} .line {{ fill: none; stroke-opacity: 0.55; stroke-width: 1.2; }}
    .{name} .axis, .{name} .arrow {{ fill: none; stroke: currentColor; stroke-opacity: 0.45; }}
    .{name} .grid {{ fill: none; stroke: currentColor; stroke-opacity: 0.15; }}
  </style>
{parts}
</svg>
"""
