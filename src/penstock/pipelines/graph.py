"""Graph of a pipeline by topics: stages between the topics that they read and write. Pure."""

from typing import Final, NamedTuple

from penstock.pipelines.endpoints import Latest, Topic
from penstock.pipelines.pipeline import Pipeline, Stage

READS: Final = "reads"
WRITES: Final = "writes"
LOOKS_UP: Final = "looks up"
REJECTS: Final = "rejects to"


class Edge(NamedTuple):
    source: str
    target: str
    kind: str


def edges(pipeline: Pipeline) -> list[Edge]:
    """Edges between stages and topics (or files), in the order of the stages."""
    found = []
    for stage in pipeline.in_order():
        found.append(Edge(str(stage.source), stage.name, READS))
        found += [Edge(_table(t), stage.name, LOOKS_UP) for t in stage.tables.values()]
        found.append(Edge(stage.name, str(stage.target), WRITES))
        found.append(Edge(stage.name, stage.dlq, REJECTS))
    return found


def draw(pipeline: Pipeline) -> list[str]:
    """Lines of a tree: topics that no stage writes; below each topic the stages that read it."""
    stages = pipeline.in_order()
    written = {stage.target.name for stage in stages if isinstance(stage.target, Topic)}
    roots = dict.fromkeys(str(s.source) for s in stages if str(s.source) not in written)
    drawn: set[str] = set()
    lines = []
    for root in roots:
        lines.append(root)
        lines += _below(root, stages, "", drawn)
    return lines


def _below(topic: str, stages: list[Stage], indent: str, drawn: set[str]) -> list[str]:
    readers = [stage for stage in stages if str(stage.source) == topic]
    if topic in drawn:
        return []
    drawn.add(topic)
    lines = []
    for index, stage in enumerate(readers):
        is_last = index == len(readers) - 1
        tables = ", ".join(_table(table) for table in stage.tables.values())
        beside = f" with {tables}" if tables else ""
        branch = "└─" if is_last else "├─"
        lines.append(f"{indent}{branch} {stage.name}{beside} → {stage.target}")
        if isinstance(stage.target, Topic):
            deeper = indent + ("   " if is_last else "│  ")
            lines += _below(stage.target.name, stages, deeper, drawn)
    return lines


def _table(table: object) -> str:
    return table.topic if isinstance(table, Latest) else str(getattr(table, "path", table))
