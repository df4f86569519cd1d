"""Turns frames of a terminal (text with SGR colours, as `tmux capture-pane -e` prints it) into one animated SVG.

Usage: svg.py DIRECTORY, with one file for each quarter of a second. Equal lines of consecutive frames are drawn once.
"""

import html
import pathlib
import re
import sys

SECONDS = 0.25
COLUMNS, ROWS = 96, 23
WIDTH, HEIGHT = 8.2, 18
PAD, BAR = 14, 30
NAMES = ["black", "red", "green", "yellow", "blue", "magenta", "cyan", "white"]
COLOURS = {
    "black": "#5c6370", "red": "#f07178", "green": "#a5d66f", "yellow": "#ffcb6b",
    "blue": "#82aaff", "magenta": "#c792ea", "cyan": "#6fd3e8", "white": "#e6e6e6",
}


def spans(line):
    """Splits a line into (column, text, classes)."""
    found, column, state = [], 0, {"bold": False, "dim": False, "colour": None}
    # A spinner stands alone: the font that has it must not draw the words behind it.
    for text, codes in re.findall("([\u2800-\u28ff]|[^\x1b\u2800-\u28ff]+)|\x1b\\[([0-9;]*)m", line):
        if text:
            classes = [name for name in ("bold", "dim") if state[name]]
            classes += [state["colour"]] if state["colour"] else []
            found.append((column, text, " ".join(classes)))
            column += len(text)
            continue
        for code in (int(part or 0) for part in codes.split(";")):
            if code == 0:
                state = {"bold": False, "dim": False, "colour": None}
            elif code == 1:
                state["bold"] = True
            elif code == 2:
                state["dim"] = True
            elif code == 22:
                state["bold"] = state["dim"] = False
            elif 30 <= code <= 37:
                state["colour"] = NAMES[code - 30]
            elif 90 <= code <= 97:
                state["colour"] = NAMES[code - 90]
            elif code == 39:
                state["colour"] = None
    return found


def row(number, line):
    """One line of the screen."""
    parts = []
    for column, text, classes in spans(line):
        bare = text.strip(" ")
        if not bare:
            continue
        column += len(text) - len(text.lstrip(" "))
        x = PAD + column * WIDTH
        kind = f' class="{classes}"' if classes else ""
        # Fixed length: columns stay aligned in every font.
        parts.append(
            f'<tspan x="{x:.1f}" textLength="{len(bare) * WIDTH:.1f}"{kind}>{html.escape(bare, quote=False)}</tspan>'
        )
    return f'<text xml:space="preserve" y="{BAR + PAD + (number + 1) * HEIGHT - 5}">{"".join(parts)}</text>' if parts else ""


def main():
    """Prints the SVG."""
    frames = [path.read_text().split("\n") for path in sorted(pathlib.Path(sys.argv[1]).iterdir())]
    frames = [[line.rstrip() for line in frame[:ROWS]] + [""] * (ROWS - len(frame)) for frame in frames]
    total = len(frames) * SECONDS
    shapes, rules, steps = {}, [], {}
    for number in range(ROWS):
        start = 0
        for at in range(1, len(frames) + 1):
            if at < len(frames) and frames[at][number] == frames[start][number]:
                continue
            shape = row(number, frames[start][number])
            if shape:
                shapes.setdefault((start, at), []).append(shape)
            start = at
    body = []
    for (start, end), rows in sorted(shapes.items()):
        if (start, end) == (0, len(frames)):
            body.append("".join(rows))
            continue
        name = steps.setdefault((start, end), f"s{len(steps)}")
        begin, over = 100 * start / len(frames), 100 * end / len(frames)
        hidden, shown = "{visibility:hidden}", "{visibility:visible}"
        rule = f"0%{hidden if start else shown}{begin:.2f}%{shown}"
        if end < len(frames):
            rule += f"{over:.2f}%{hidden}"
        rules.append(f"@keyframes {name}{{{rule}}}.{name}{{animation-name:{name}}}")
        last = " last" if end == len(frames) else ""
        body.append(f'<g class="f {name}{last}">{"".join(rows)}</g>')
    width, height = 2 * PAD + COLUMNS * WIDTH, BAR + 2 * PAD + ROWS * HEIGHT
    colours = "".join(f".{name}{{fill:{value}}}" for name, value in COLOURS.items())
    print(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" role="img" '
        f'aria-label="toft runs three agents on six issues; five are done and one asks a question">'
        f"<style>text{{font:13.5px ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;fill:#d7dae0;white-space:pre}}"
        f".bold{{font-weight:700}}.dim{{opacity:.6}}{colours}"
        f".f{{visibility:hidden;animation-duration:{total:.2f}s;animation-iteration-count:infinite;animation-timing-function:step-end}}"
        f"@media (prefers-reduced-motion:reduce){{.f{{animation:none}}.last{{visibility:visible}}}}"
        f"{''.join(rules)}</style>"
        f'<rect width="100%" height="100%" rx="8" fill="#1f2430"/>'
        f'<circle cx="20" cy="17" r="5.5" fill="#f07178"/><circle cx="38" cy="17" r="5.5" fill="#ffcb6b"/>'
        f'<circle cx="56" cy="17" r="5.5" fill="#a5d66f"/>'
        f"{''.join(body)}</svg>"
    )


main()
