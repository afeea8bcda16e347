"""Tables of GPU figures in the documents: each stands between <!-- gpu: NAME --> and <!-- end -->."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

Figures = Mapping[str, Mapping[str, Any]]  # part -> figures
WORKLOADS, CUSTOMERS = ("cvrp", "tinystories", "bep", "crypto", "lmol"), (20, 50, 100)
KEYS = ("", "ms"), (" bf16", "ms"), ("", "gib")  # precision and figure of a pair of columns
EMPTY, NOTHING = "not measured", "No GPU has been measured yet."


def fill(records: Sequence[Mapping[str, Any]], documents: Sequence[Path]) -> None:
    """Write the records' figures into the documents' marked tables."""
    figures = {record["part"]: record["figures"] for record in records if "figures" in record}
    devices = sorted({record["device"] for record in records})
    for document in documents:
        text = document.read_text()

        def table(match: re.Match) -> str:
            lines = TABLES[match[1]](figures)
            if lines == TABLES[match[1]]({}):
                return f"<!-- gpu: {match[1]} -->\n{NOTHING}\n<!-- end -->"
            known = [cells for cells in zip(*lines, strict=True) if set(cells[1:]) != {EMPTY}]  # columns
            rows = [f"| {' | '.join(cells)} |" for cells in zip(*known, strict=True)]
            rule = "|---" * len(known) + "|"
            where = [f"On {', '.join(devices)}, by `tests/gpu/figures.py`:", ""] if devices else []
            return "\n".join([f"<!-- gpu: {match[1]} -->", *where, rows[0], rule, *rows[1:], "<!-- end -->"])

        filled = re.sub(r"<!-- gpu: (\w+) -->.*?<!-- end -->", table, text, flags=re.DOTALL)
        if filled != text:
            document.write_text(filled)
            print(f"{document}: filled")


def rate(figures: Figures, part: str, key: str = "examples_per_s", shares: float = 1.0) -> str:
    value = figures.get(part, {}).get(key)
    return EMPTY if value is None else f"{shares * value:,.3g}" if value < 100 else f"{shares * value:,.0f}"


def throughput(figures: Figures) -> list[list[str]]:
    """Examples per second of whole training steps."""
    rows = [
        ["examples/s", "CPU", "fp32", "tf32", "bf16", "peak memory in bf16, GiB", "share of a large product's speed"]
    ]
    for name in WORKLOADS:
        tf32 = figures.get(f"{name} tf32", {})
        slower = tf32.get("targets_per_s, hardware.tf32=false", 0) / tf32["targets_per_s"] if tf32 else 1.0
        cells = [rate(figures, f"{name} CPU"), rate(figures, f"{name} tf32", shares=slower)]
        cells += [rate(figures, f"{name} {precision}") for precision in ("tf32", "bf16")]
        used = [rate(figures, f"{name} bf16", key) for key in ("peak_memory_gib", "model_flops_utilisation")]
        rows.append([f"`{name}`", *cells, *used])
    return rows


def routing(figures: Figures) -> list[list[str]]:
    """Instances per second beside RL4CO's."""
    rows = [["customers, as many starts", "bf16", "RL4CO as it comes (fp16)", "fp32", "RL4CO in fp32"]]
    for customers in CUSTOMERS:
        cells = []
        for ours, theirs in (("bf16", "RL4CO"), ("fp32", "RL4CO fp32")):
            one, other = (
                figures.get(f"routing {customers} {which}", {}).get("examples_per_s") for which in (ours, theirs)
            )
            times = f" ({one / other:.1f}x)" if one and other else ""
            cells += [
                rate(figures, f"routing {customers} {ours}"),
                rate(figures, f"routing {customers} {theirs}") + times,
            ]
        rows.append([str(customers), *cells])
    return rows


def kernels(figures: Figures) -> list[list[str]]:
    """Routing kernels beside torch: whether they agree, and milliseconds of tours with their gradients."""
    heads = [f"{name}, {unit}" for unit in ("ms", "ms in bf16", "GiB") for name in ("kernels", "torch")]
    rows = [["customers, as many starts", "agrees with torch", *heads]]
    for customers in CUSTOMERS:
        found = figures.get("kernels", {}).get(str(customers))
        if found is None:
            rows.append([str(customers), *[EMPTY] * 7])
            continue
        asked = [(name + precision, key) for precision, key in KEYS for name in ("kernels", "torch")]
        cells = [f"{found[name][key]:.3g}" if name in found else EMPTY for name, key in asked]
        rows.append([str(customers), found["differs"] or "yes", *cells])
    return rows


def llava(figures: Figures) -> list[list[str]]:
    """LLaVA-1.5-7B's sizes with adapters."""
    keys = ("examples_per_s", "peak_memory_gib", "model_flops_utilisation")
    header = ["pairs/s, both orders", "peak memory, GiB", "share of a large product's speed"]
    return [header, [rate(figures, "llava-1.5-7b", key) for key in keys]]


def others(figures: Figures) -> list[list[str]]:
    """What is not a speed of one GPU."""
    kills = figures.get("kills")
    killed = EMPTY if kills is None else f"{kills['kills']}: {'yes' if kills['same_bits'] else 'no'}"

    def listed(part: str) -> str:
        found = figures.get(part)
        return (
            EMPTY if found is None else ", ".join(f"{name} {'yes' if found[name] is True else 'no'}" for name in found)
        )

    def trained(part: str) -> str:
        coins = figures.get(part)
        return f"{coins['seconds']:.0f} s for {coins['coins']} coins x {coins['epochs']} epochs" if coins else EMPTY

    return [
        ["what", "found"],
        ["the same bits twice, `hardware.deterministic=true`", listed("same bits")],
        ["kills with --resume, and the same bits as undisturbed", killed],
        ["trained in bf16, resumed, evaluated and exported", listed("stages")],
        ["models that ship answer as on a CPU, to three digits", listed("answers")],
        ["`crypto`, all coins in one process", trained("coins")],
        ["`crypto`, a process for each coin, `hardware.stack=false`", trained("coins in many")],
        ["`cvrp` on two GPUs, examples/s in bf16", rate(figures, "two GPUs")],
    ]


TABLES = {"throughput": throughput, "routing": routing, "kernels": kernels, "llava": llava, "others": others}
