"""Command lines of theory, experiments and results that cannot be used as given."""

from __future__ import annotations

from .commands import OUT, bad_flag, bad_line, with_user
from .files import a_file, binary, pickled_arrays, saved, thesis, together, truncated

ROWS = [
    bad_flag("theory-unknown", "theory gpt", "blocks", "gpt"),
    bad_flag("theory-case-unknown", "theory blocks --case conv", "--case", "'conv'"),
    bad_flag("compare-one", "compare mine.py:make", "compare", "required|Missing"),
    bad_flag("show-nothing", "show", "Missing", "PATH"),
    bad_line("theory-one-class", "theory blocks --classes 1", "classes must be an integer", "1", r"\w"),
    bad_line("theory-no-classes", "theory blocks --classes", "classes", "none|empty|no ", r"\w"),
    bad_line("theory-ratio", "theory blocks --ratio -1", "ratio = d/N", r"-1\.0", r"\w"),
    bad_line(
        "theory-hidden", "theory blocks --case hidden-mse --hidden 2", "hidden must be an integer", "2", "measure"
    ),
    bad_line("theory-glm-ratio", "theory glm --ratio 0", "ratio = p/n", r"0\.0", "0.25"),
    bad_line("theory-glm-nan", "theory glm --w nan", "finite", "nan|w", r"\w"),
    bad_line("theory-linear-width", "theory linear --width 0", "width", "0", r"\w"),
    bad_line("theory-linear-width-negative", "theory linear --width -3", "width", "-3", r"\w"),
    bad_line("theory-linear-examples", "theory linear --examples 0", "examples", "0", r"\w"),
    bad_line("theory-relu-examples", "theory relu --examples -1", "examples", "-1", r"\w"),
    bad_line("theory-attention-head", "theory attention --head-size 0", "head.size", "0", r"\w"),
    bad_line("theory-attention-length", "theory attention --length 0", "length", "0", r"\w"),
    bad_line("theory-attention-sequences", "theory attention --sequences -1", "sequences", "-1", r"\w"),
    bad_line("theory-out-file", "theory --out mine linear", OUT, "mine", r"\w", files=with_user(a_file), error=3),
    bad_line("reproduce-nothing", "reproduce", "name an experiment", "none", "--list"),
    bad_line(
        "reproduce-unknown",
        "reproduce liao2021.fig99",
        "an experiment must be one of",
        "'liao2021.fig99'",
        r"liao2021\.fig1",
    ),
    bad_line(
        "reproduce-data-dir",
        "reproduce liao2021.fig1 --data-dir nowhere",
        "data folder must exist",
        "'nowhere'",
        "--data-dir",
    ),
    bad_line("reproduce-seeds", "reproduce liao2021.fig1 --seeds 0", "--seeds must be at least 1", "0", "--seeds 5"),
    bad_line(
        "reproduce-set-unknown",
        "reproduce liao2021.fig1 --set colour=red",
        "--set takes name=value",
        "'colour=red'",
        "There are",
    ),
    bad_line(
        "reproduce-set-no-value", "reproduce liao2021.fig1 --set seed", "--set takes name=value", "'seed'", "There are"
    ),
    bad_line(
        "reproduce-set-type", "reproduce liao2021.fig1 --set seed=first", "seed must be of type int", "'first'", r"\w"
    ),
    bad_line(
        "reproduce-out-file", "reproduce liao2021.fig1 --out mine", OUT, "mine", r"\w", files=with_user(a_file), error=3
    ),
    bad_line("compare-missing", "compare a.json b.json", "result file must exist", r"'a\.json'", r"\w"),
    bad_line(
        "compare-other-kind",
        "compare found.json found.json",
        "two analyses",
        r"Eigenpairs in 'found\.json'",
        "hesscope analyze",
        files=saved,
    ),
    bad_line("compare-neither", "compare mlp resnet", "a preset must be known", "'mlp'", "mlp-digits"),
    bad_line("compare-k-zero", "compare mine.py:make mine.py:make --k 0", "k must be", "0", r"\w"),
    bad_line("report-nothing", "report", "at least one result", "nothing", "hesscope analyze"),
    bad_line("report-empty-folder", "report .", "at least one result", r"\.", "hesscope analyze"),
    bad_line("report-missing", "report found.json", "result file must exist", r"'found\.json'", r"\w"),
    bad_line("report-truncated", "report found.json", "complete JSON", r"'found\.json'", "truncated", files=truncated),
    bad_line(
        "report-out-folder",
        "report found.json --out mine",
        "file|folder",
        "mine",
        r"\w",
        files=together(saved, thesis),
        error=3,
    ),
    bad_line(
        "report-out-below-a-file",
        "report found.json --out mine/page.html",
        "file|folder",
        "mine",
        r"\w",
        files=together(saved, a_file),
        error=3,
    ),
    bad_line("show-missing", "show found.json", "result file must exist", r"'found\.json'", r"\w"),
    bad_line("show-folder", "show mine", "result file must exist", "'mine'", r"\w", files=thesis),
    bad_line("show-binary", "show found.json", "complete JSON", r"'found\.json'", r"\w", files=binary),
    bad_line(
        "show-pickled",
        "show found.json",
        "pickled objects are never loaded|only a0.npy",
        r"found\.npz",
        r"\w",
        files=pickled_arrays,
    ),
    bad_line("show-python", "show mine.py", "result file", r"mine\.py", r"\w"),
    bad_line("demo-out-file", "demo --out mine", OUT, "mine", r"\w", files=a_file, error=3),
]
