"""Whatever is sent from within a valid session, the broker serves others, lives and stays small.

Method: bursts of frames that are valid but for some damage (fields, lengths, array sizes, nulls,
versions, cut and doubled frames, split segments), from a seed that is printed and that
OTTLA_FUZZ_SEED sets; OTTLA_FUZZ_FRAMES says how many. After each burst a bystander must be served;
it watches the broker's memory, and its log for tracebacks.
"""

import os
from pathlib import Path

import pytest

from ottla.testing import Cluster

from .bystander import GROWTH_BYTES_MAX, Bystander
from .conftest import QUICK
from .frame_fuzzer import BURST, Fuzzer

FRAMES = int(os.environ.get("OTTLA_FUZZ_FRAMES", "2000"))
SEED = int(os.environ.get("OTTLA_FUZZ_SEED", "7"))

CONFIG = {**QUICK, "socket.listen.backlog.size": str(BURST)}
"""A burst's connections come at once; those that find no place would come a second later."""


@pytest.mark.timeout(max(120, FRAMES // 20))
def test_damaged_frames_from_valid_sessions(tmp_path: Path) -> None:
    with Cluster(brokers=1, config=CONFIG) as cluster, Bystander(cluster) as bystander:
        fuzzer = Fuzzer(cluster, SEED)
        print(f"OTTLA_FUZZ_SEED={SEED} OTTLA_FUZZ_FRAMES={FRAMES}")
        for number in range(-(-FRAMES // BURST)):
            seen = len(cluster.logs(1))
            try:
                fuzzer.burst()
                bystander.wait_round()
                growth = bystander.rss_max - bystander.rss_before
                assert growth < GROWTH_BYTES_MAX, f"the broker grew by {growth >> 20} MB"
                logged = cluster.logs(1)[seen:]
                assert "Traceback" not in logged, logged[logged.index("Traceback") - 500 :][:3000]
            except BaseException:
                frames = tmp_path / "frames"
                frames.write_text("\n".join(frame.hex() for frame in fuzzer.last))
                print(f"seed {SEED}, burst {number}; its frames are in {frames}")
                raise
        total = fuzzer.answered + fuzzer.closed + fuzzer.silent
        print(f"{fuzzer.answered} answered, {fuzzer.closed} closed, {fuzzer.silent} silent")
        assert total >= FRAMES
        assert fuzzer.answered > total // 4, "or most of it got no further than the header"
        assert fuzzer.closed > total // 20
        assert fuzzer.silent < total // 4
