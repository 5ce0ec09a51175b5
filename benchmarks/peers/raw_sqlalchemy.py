"""The two statements of the floor through SQLAlchemy Core, as a program would write them that does nothing else."""

import json
from typing import Any

import sqlalchemy as sa

from benchmarks.harness import Peer, Variant, payload

tables = sa.MetaData()
runs = sa.Table(
    "runs",
    tables,
    sa.Column("id", sa.String, primary_key=True),
    sa.Column("state", sa.String),
    sa.Column("revision", sa.Integer),
)
snapshots = sa.Table(
    "snapshots",
    tables,
    sa.Column("run", sa.String, primary_key=True),
    sa.Column("revision", sa.Integer, primary_key=True),
    sa.Column("state", sa.String),
    sa.Column("context", sa.Text),
)
ADD_SNAPSHOT = snapshots.insert()
MOVE_RUN = (
    runs.update()
    .where(runs.c.id == sa.bindparam("run"))
    .values(state=sa.bindparam("to"), revision=sa.bindparam("number"))
)
LAST_CONTEXT = sa.select(snapshots.c.context).where(snapshots.c.run == "r").order_by(snapshots.c.revision.desc())


class Core(Peer):
    """One connection on the calling thread, one commit for each transition."""

    def open(self) -> None:
        self.engine = sa.create_engine(f"sqlite:///{self.meter.database}")
        tables.create_all(self.engine)
        self.connection = self.engine.connect()

    def close(self) -> None:
        self.connection.close()
        self.engine.dispose()

    def save(self, revision: int, **context: Any) -> None:
        text, state = json.dumps({"n": revision, **context}), "ab"[revision & 1]
        with self.connection.begin():
            self.connection.execute(ADD_SNAPSHOT, {"run": "r", "revision": revision, "state": state, "context": text})
            self.connection.execute(MOVE_RUN, {"run": "r", "to": state, "number": revision})

    def one_run(self) -> None:
        with self.connection.begin():
            self.connection.execute(runs.insert(), {"id": "r", "state": "start", "revision": 0})
        revision = 0
        while not self.meter.is_enough(revision):
            self.meter.step()
            revision += 1
            self.save(revision, payload=payload(revision))

    leave_run = one_run

    def resume_run(self) -> None:
        with self.connection.begin():
            text = self.connection.execute(LAST_CONTEXT.limit(1)).scalar_one()
        self.meter.step()
        revision = json.loads(text)["n"] + 1
        self.save(revision, payload=payload(revision))


VARIANTS = {"core": Variant(Core)}
