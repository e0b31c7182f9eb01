"""The places of everything in a picture of a given width. Pure: the same scene and width are the same drawing.

Wide, a server is a column with its replicas, and consumers are on the right. Narrow, consumers are below. Where there
are more servers than columns fit, a row has the replicas of its partition alone, each with the number of its server.
A line from a leader to its consumer runs in the gutter under the row, then down a lane of its own.

Before that somebody chooses a topic: `tiles` places servers and topics, `mosaic` all partitions of a large topic.
"""

from dataclasses import dataclass, field
from zlib import crc32

from odradek.console.picture.scene import GroupScene, PartitionScene, ReplicaScene, Scene
from odradek.wording import readable_size

LEAST_WIDTH, MOST_WIDTH, DEFAULT_WIDTH = 320, 1600, 1040
WIDE = 640  # from here on consumers are on the right
LABEL, MARGIN, GAP = 92, 8, 12
CONSUMERS = 216
LEAST_COLUMN, MOST_COLUMN = 96, 240
CELL, HEADER, TITLE = 64, 46, 20
GUTTER, LANE = 20, 6
CONSUMER, GROUP_TITLE = 44, 42
READERS = 8  # colours and dashes


@dataclass(frozen=True)
class Column:
    """A server."""

    broker: int
    x: int
    width: int
    height: int
    is_alive: bool
    is_controller: bool


@dataclass(frozen=True)
class Cell:
    """A replica. `fill` is its log's share of the bar, `high` where the high watermark is, both in units of the bar."""

    id: str
    x: int
    y: int
    width: int
    replica: ReplicaScene
    title: str | None  # the server's name, if no column says it
    bar: int
    fill: int
    high: int | None
    first: str
    second: str


@dataclass(frozen=True)
class Row:
    partition: int
    x: int
    y: int
    cells: list[Cell]
    is_offline: bool


@dataclass(frozen=True)
class Reader:
    """A consumer."""

    id: str
    x: int
    y: int
    width: int
    name: str
    reads: str
    lag: int | None
    style: int


@dataclass(frozen=True)
class GroupTitle:
    id: str
    x: int
    y: int
    name: str
    state: str


@dataclass(frozen=True)
class Line:
    """A line from a leader to the consumer that reads it."""

    id: str
    path: str
    arrow: str
    style: int
    label: str


@dataclass
class Drawing:
    width: int
    height: int = 0
    columns: list[Column] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    groups: list[GroupTitle] = field(default_factory=list)
    readers: list[Reader] = field(default_factory=list)
    lines: list[Line] = field(default_factory=list)


def clamped(width: int) -> int:
    return min(max(width, LEAST_WIDTH), MOST_WIDTH)


def draw(scene: Scene, width: int) -> Drawing:
    width = clamped(width)
    is_wide = width >= WIDE
    consumers = sum(len(group.consumers) for group in scene.groups)
    lanes = LANE * min(consumers, 2 * READERS) + GAP if consumers else 0
    right = (CONSUMERS if is_wide and scene.groups else 0) + lanes
    label = LABEL if is_wide else 0
    drawing = Drawing(width)
    grid = _Grid(scene, label + MARGIN, width - right - MARGIN, is_wide)
    drawing.rows = grid.rows()
    drawing.columns = grid.columns()
    drawing.height = grid.bottom + MARGIN
    lane_x = width - right + GAP // 2 if is_wide else width - lanes + GAP // 2
    if is_wide:
        _place_groups(drawing, scene, width - CONSUMERS, MARGIN, CONSUMERS - MARGIN)
    else:
        _place_groups(drawing, scene, MARGIN, drawing.height, width - lanes - 2 * MARGIN)
    _draw_lines(drawing, scene, lane_x, is_wide)
    return drawing


class _Grid:
    """Servers and their replicas, between two edges."""

    def __init__(self, scene: Scene, left: int, right: int, is_wide: bool) -> None:
        self._scene, self._left, self._is_wide = scene, left, is_wide
        room = right - left
        count = max(len(scene.brokers), 1)
        fitting = (room - GAP * (count - 1)) // count
        self._has_columns = fitting >= LEAST_COLUMN
        most = max((len(one.replicas) for one in scene.partitions), default=1)
        if not self._has_columns:
            fitting = (room - GAP * (most - 1)) // most
        self._width = max(min(fitting, MOST_COLUMN), 40)
        self._x = {broker.broker: left + at * (self._width + GAP) for at, broker in enumerate(scene.brokers)}
        self._top = HEADER if self._has_columns else MARGIN
        self._pitch = CELL + GUTTER + (0 if is_wide else TITLE)
        self._longest = max((one.log_end or 0 for one in scene.partitions), default=0)
        self.bottom = self._top + MARGIN + self._pitch * len(scene.partitions)

    def columns(self) -> list[Column]:
        if not self._has_columns:
            return []
        return [
            Column(
                *(one.broker, self._x[one.broker], self._width, self.bottom - MARGIN),
                *(one.is_alive, one.is_controller),
            )
            for one in self._scene.brokers
        ]

    def rows(self) -> list[Row]:
        return [self._row(at, one) for at, one in enumerate(self._scene.partitions)]

    def _row(self, at: int, partition: PartitionScene) -> Row:
        y = self._top + MARGIN + at * self._pitch + (0 if self._is_wide else TITLE)
        leading = next((one for one in partition.replicas if one.is_leader), None)
        cells = [
            self._cell(partition, replica, leading, number, y)
            for number, replica in enumerate(partition.replicas)
        ]
        return Row(partition.partition, self._left, y, cells, partition.leader is None)

    def _cell(
        self,
        partition: PartitionScene,
        replica: ReplicaScene,
        leading: ReplicaScene | None,
        number: int,
        y: int,
    ) -> Cell:
        if self._has_columns:
            x = self._x[replica.broker] + 4
            width = self._width - 8
        else:
            x, width = self._left + number * (self._width + GAP), self._width
        bar = width - 16
        share = _share(partition, replica, leading, self._longest)
        fill = round(bar * share)
        high = None
        if replica.is_leader and partition.high_watermark is not None and partition.log_end:
            high = round(fill * min(partition.high_watermark / partition.log_end, 1))
        return Cell(
            id=f"replica-{partition.partition}-{replica.broker}",
            x=x,
            y=y,
            width=width,
            replica=replica,
            title=None if self._has_columns else f"broker {replica.broker}",
            bar=bar,
            fill=fill,
            high=high,
            first=f"hw {_number(partition.high_watermark)}" if replica.is_leader else "",
            second=f"end {_number(partition.log_end)}" if replica.is_leader else _size(replica.size_bytes),
        )


def _share(
    partition: PartitionScene, replica: ReplicaScene, leading: ReplicaScene | None, longest: int
) -> float:
    """A leader's bar is as long as its log, a follower's as many of its bytes as it has."""
    if not longest or partition.log_end is None:
        return 0.0
    whole = partition.log_end / longest
    if replica.is_leader or leading is None or not leading.size_bytes:
        return whole if replica.is_alive else 0.0
    return whole * min((replica.size_bytes or 0) / leading.size_bytes, 1.0)


def _place_groups(drawing: Drawing, scene: Scene, x: int, y: int, width: int) -> None:
    styles = styles_of([(group.group, one.name) for group in scene.groups for one in group.consumers])
    for number, group in enumerate(scene.groups):
        drawing.groups.append(GroupTitle(f"group-{number}", x, y + 16, group.group, group.state))
        y += GROUP_TITLE
        for consumer in group.consumers:
            drawing.readers.append(
                Reader(
                    id=f"reader-{number}-{consumer.member_id}",
                    x=x,
                    y=y,
                    width=width,
                    name=consumer.name,
                    reads=_reads(consumer.partitions),
                    lag=_lag(scene, group, consumer.partitions),
                    style=styles.pop(0),
                )
            )
            y += CONSUMER + GAP // 2
        if not group.consumers:
            y += GAP
    drawing.height = max(drawing.height, y + MARGIN)


def styles_of(names: list[tuple[str, str]]) -> list[int]:
    """A colour and dash for each consumer, by its name: who stays keeps it when others come and go."""
    free, styles = set(range(READERS)), []
    for name in names:
        wanted = crc32("\0".join(name).encode())
        style = next(
            (at for step in range(READERS) if (at := (wanted + step) % READERS) in free), wanted % READERS
        )
        free.discard(style)
        styles.append(style)
    return styles


def _draw_lines(drawing: Drawing, scene: Scene, lane_x: int, is_wide: bool) -> None:
    readers = {one.id: one for one in drawing.readers}
    lanes = {one.id: lane_x + LANE * (at % (2 * READERS)) for at, one in enumerate(drawing.readers)}
    rows = {row.partition: row for row in drawing.rows}
    ports: dict[str, int] = {}
    for number, group in enumerate(scene.groups):
        for partition, consumer in sorted(group.readers().items()):
            reader = readers[f"reader-{number}-{consumer.member_id}"]
            row = rows.get(partition)
            cell = next((one for one in row.cells if one.replica.is_leader), None) if row else None
            if cell is None:
                continue
            port = ports.get(reader.id, 0)
            ports[reader.id] = port + 1
            path, arrow = _path(cell, number, reader, lanes[reader.id], port, is_wide)
            label = f"{reader.name} reads partition {partition}"
            drawing.lines.append(Line(f"line-{number}-{partition}", path, arrow, reader.style, label))


def _path(cell: Cell, group: int, reader: Reader, lane: int, port: int, is_wide: bool) -> tuple[str, str]:
    x = cell.x + cell.width // 2 + 10 * group
    gutter = cell.y + CELL + 6 + 4 * group
    y = reader.y + 10 + 8 * (port % 4)
    if is_wide:
        end = reader.x
        arrow = f"{end},{y} {end - 6},{y - 4} {end - 6},{y + 4}"
    else:
        end = reader.x + reader.width
        arrow = f"{end},{y} {end + 6},{y - 4} {end + 6},{y + 4}"
    return f"M {x} {cell.y + CELL} L {x} {gutter} L {lane} {gutter} L {lane} {y} L {end} {y}", arrow


def _reads(partitions: tuple[int, ...]) -> str:
    if not partitions:
        return "reads nothing"
    shown = ", ".join(map(str, partitions[:6]))
    rest = len(partitions) - 6
    return f"reads {shown}" + (f" and {rest} more" if rest > 0 else "")


def _lag(scene: Scene, group: GroupScene, partitions: tuple[int, ...]) -> int | None:
    ends = {one.partition: one.high_watermark for one in scene.partitions}
    behind = [
        max(end - group.committed[one], 0)
        for one in partitions
        if one in group.committed and (end := ends.get(one)) is not None
    ]
    return sum(behind) if behind else None


def _number(value: int | None) -> str:
    return "?" if value is None else f"{value:,}"


def _size(size_bytes: int | None) -> str:
    return readable_size(size_bytes) or ""


# Before a topic is chosen

TILE_WIDTH, TILE_HEIGHT, TILE_GAP = 168, 78, 12
SQUARE = 14


@dataclass(frozen=True)
class Spot:
    x: int
    y: int
    width: int


@dataclass(frozen=True)
class Tiling:
    spots: list[Spot]
    height: int


def tiles(count: int, width: int) -> Tiling:
    """Places as many tiles beside each other as fit, all of one width."""
    width = clamped(width)
    across = max(1, (width + TILE_GAP) // (TILE_WIDTH + TILE_GAP))
    across = min(across, max(count, 1))
    each = min((width - TILE_GAP * (across - 1)) // across, TILE_WIDTH + 60)
    spots = [
        Spot(at % across * (each + TILE_GAP), at // across * (TILE_HEIGHT + TILE_GAP), each)
        for at in range(count)
    ]
    down = -(-count // across)
    return Tiling(spots, max(down * (TILE_HEIGHT + TILE_GAP) - TILE_GAP, 0))


def mosaic(count: int, width: int) -> Tiling:
    """A square for each partition."""
    width = clamped(width)
    across = max(1, width // (SQUARE + 2))
    spots = [Spot(at % across * (SQUARE + 2), at // across * (SQUARE + 2), SQUARE) for at in range(count)]
    return Tiling(spots, -(-count // across) * (SQUARE + 2))
