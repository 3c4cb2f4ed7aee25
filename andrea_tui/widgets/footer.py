"""The keys that matter now."""

from andrea_tui.core.views import FooterView
from andrea_tui.widgets.paint import Line, Run
from andrea_tui.widgets.pane import Pane


class FooterLine(Pane[FooterView]):
    def draw(self, v: FooterView, width: int, height: int) -> list[Line]:
        runs: list[Run] = []
        for key, label in v.items:
            if runs:
                runs.append(("  ", "text"))
            runs += [(key, "key"), (" " + label, "text")]
        return [tuple(runs)]
