"""Figures that a notebook shows. Needs matplotlib."""

from io import BytesIO

from matplotlib.figure import Figure


class Shown(Figure):
    """A figure that is not pyplot's: a notebook shows its picture."""

    def _repr_png_(self) -> bytes:
        picture = BytesIO()
        self.savefig(picture, format="png", dpi=100)
        return picture.getvalue()
