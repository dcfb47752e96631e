"""Files appear whole or not at all, and locks end with their holder."""

import errno
import fcntl
import os
import stat
import subprocess
import sys
import threading

import pytest

from fa_audit.core.errors import AuditError
from fa_audit.core.files import (
    exclusive,
    read_json,
    remove_leftovers,
    sha256_of,
    write_atomically,
    write_json,
    write_text,
)


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "table.csv"
    write_text(path, "old")

    def fail(part):
        part.write_text("half")
        raise OSError("disk full")

    with pytest.raises(AuditError, match=r"table.csv: not written \(disk full; .* free on its disk\). Free some space"):
        write_atomically(path, fail)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_killed_writer_leaves_the_old_file_and_a_leftover_that_can_be_removed(tmp_path):
    path = tmp_path / "table.csv"
    write_text(path, "old")
    program = (
        "import os, signal; from fa_audit.core.files import write_atomically;"
        f"write_atomically({str(path)!r}, lambda part: (part.write_text('half'), os.kill(os.getpid(), signal.SIGKILL)))"
    )
    assert subprocess.run([sys.executable, "-c", program]).returncode == -9
    assert path.read_text() == "old" and len(list(tmp_path.iterdir())) == 2
    remove_leftovers(path)
    assert list(tmp_path.iterdir()) == [path]


def test_a_new_file_has_ordinary_permissions(tmp_path):
    write_text(tmp_path / "a", "x")
    (tmp_path / "b").write_text("x")
    modes = [stat.S_IMODE(os.stat(tmp_path / name).st_mode) for name in "ab"]
    assert modes[0] == modes[1]


def test_json_refuses_numbers_that_are_not_numbers(tmp_path):
    with pytest.raises(ValueError, match="JSON"):
        write_json(tmp_path / "a.json", {"x": float("nan")})
    assert not (tmp_path / "a.json").exists()


def test_half_of_a_json_file_is_refused(tmp_path):
    write_json(tmp_path / "a.json", {"x": 1})
    assert read_json(tmp_path / "a.json") == {"x": 1}
    (tmp_path / "a.json").write_text('{"x": ')
    with pytest.raises(
        AuditError,
        match=r"a.json: found no JSON .*; expected JSON. If it should be that, delete it and run snakemake again",
    ):
        read_json(tmp_path / "a.json")


def test_the_digest_depends_on_contents_and_order_only(tmp_path):
    for name, text in (("a", "1"), ("b", "2"), ("c", "1")):
        (tmp_path / name).write_text(text)
    a, b, c = (tmp_path / name for name in "abc")
    assert sha256_of([a, b]) == sha256_of([c, b]) != sha256_of([b, a])


def test_a_lock_is_refused_while_held_and_free_after_its_holder_was_killed(tmp_path):
    lock = tmp_path / "lock"
    program = (
        "import time; from fa_audit.core.files import exclusive;\n"
        f"with exclusive({str(lock)!r}): print('held', flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(BlockingIOError, match=f"process {holder.pid} on "), exclusive(lock, wait=False):
            pass
        holder.kill()
    with exclusive(lock, wait=False):
        pass


def test_who_waits_for_a_lock_says_for_whom(tmp_path, caplog):
    caplog.set_level("INFO")
    lock, free = tmp_path / "lock", threading.Event()

    def hold():
        with exclusive(lock):
            held.set()
            free.wait()

    held = threading.Event()
    holder = threading.Thread(target=hold)
    holder.start()
    held.wait()
    threading.Timer(0.2, free.set).start()
    with exclusive(lock):
        assert f"waiting: process {os.getpid()} on " in caplog.text and str(lock) in caplog.text
    holder.join()


def test_a_file_system_without_locks_is_told(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with (
        pytest.raises(AuditError, match=r"lock: not locked \(No locks available\).* has no locks"),
        exclusive(tmp_path / "lock"),
    ):
        pass
