"""Rotary tables of the rows of a batch, by positions of three axes."""

from tests.support.harness.cases import Case, Sym, T, case


def axes(width: int, positions: int, sections: tuple[int, int], others: int = 0, **more) -> Case:
    table = T(2, positions + others, width, constant=True)
    places = T("n", 3, dtype="i32", low=0, high=positions)
    return case("webpte.axis_angles", table, places, more.pop("advance", 0), positions, *sections, **more)


CASES = [
    axes(32, 40, (11, 10), n=(7, 1)),
    axes(8, 17, (2, 0), others=6, n=(29, 3)),
    axes(10, 9, (0, 3), others=3, advance=Sym("n"), n=(5, 1)),
]
