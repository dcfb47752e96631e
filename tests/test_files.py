"""Files appear whole or not at all, and locks end with their holder."""

import errno
import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from fa_audit.core.errors import AuditError
from fa_audit.core.files import (
    check_output,
    exclusive,
    read_json,
    remove_leftovers,
    write_json,
    write_text,
)
from fa_audit.core.files import write_atomically as write
from fa_audit.core.folder import check_writable


def python(program, **options):
    return subprocess.Popen([sys.executable, "-c", program], text=True, **options)


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "table.csv"
    write(path, lambda part: (part.write_text("old"), part.chmod(0o600)))
    (tmp_path / "plain").write_text("x")
    assert (
        len({stat.S_IMODE(os.stat(tmp_path / name).st_mode) for name in ("plain", "table.csv")})
        == 1
    )
    (tmp_path / "plain").unlink()

    def fail(part):
        part.write_text("half")
        raise OSError(errno.ENOSPC, "disk full")

    with pytest.raises(
        AuditError,
        match=r"table.csv: not written \(disk full; .* free on its disk\). Free some space",
    ):
        write(path, fail)
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]


def test_a_killed_writer_leaves_the_old_file_and_a_leftover_that_can_be_removed(tmp_path):
    path = tmp_path / "table.csv"
    write_text(path, "old")
    kill = "(part.write_text('half'), os.kill(os.getpid(), signal.SIGKILL))"
    imports = "import os, signal; from fa_audit.core.files import write_atomically;"
    assert python(f"{imports} write_atomically({str(path)!r}, lambda part: {kill})").wait() == -9
    assert path.read_text() == "old" and len(list(tmp_path.iterdir())) == 2
    remove_leftovers(path)
    assert list(tmp_path.iterdir()) == [path]


def test_json_is_whole_and_without_nan(tmp_path):
    path = tmp_path / "a.json"
    with pytest.raises(ValueError, match="JSON"):
        write_json(path, {"x": float("nan")})
    assert not path.exists()
    write_json(path, {"x": 1})
    assert read_json(path) == {"x": 1}
    for text, found in (
        ('{"x": ', "no JSON"),
        ("", "an empty file"),
        ("NaN", "NaN, which JSON does not have"),
    ):
        path.write_text(text)
        with pytest.raises(
            AuditError,
            match=rf"a.json: found .*{found}.*; expected a b. .* delete it and make it again",
        ):
            read_json(path, "a b")


def test_a_lock_names_its_holder_while_held_and_is_free_after_the_holder_was_killed(
    tmp_path, caplog
):
    caplog.set_level("INFO")
    lock = tmp_path / "lock"
    program = (
        "import time; from fa_audit.core.files import exclusive;\n"
        f"with exclusive({str(lock)!r}): print('held', flush=True); time.sleep(60)"
    )
    with python(program, stdout=subprocess.PIPE) as holder:
        assert holder.stdout.readline() == "held\n"
        with (
            pytest.raises(BlockingIOError, match=f"process {holder.pid} on "),
            exclusive(lock, wait=False),
        ):
            pass
        threading.Timer(0.1, holder.kill).start()
        with exclusive(lock):
            assert f"waiting: process {holder.pid} on " in caplog.text and str(lock) in caplog.text


@pytest.mark.parametrize("make", [Path.touch, lambda path: path.symlink_to("not mounted")])
def test_what_stands_in_the_place_of_a_folder_is_named_before_any_job(tmp_path, make):
    (tmp_path / "results").mkdir()
    check_writable([tmp_path / "results", tmp_path / "absent"])
    make(tmp_path / "file")
    with pytest.raises(AuditError, match=r"file: found no folder .*Move it away"):
        check_writable([tmp_path / "results", tmp_path / "file"])


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to(path.with_name("file"))])
def test_what_is_no_file_keeps_its_name_and_takes_the_content(tmp_path, make):
    make(tmp_path / "name.txt")
    with python(
        f"print(open({str(tmp_path / 'name.txt')!r}).read())"
        if (tmp_path / "name.txt").is_fifo()
        else "print('new')",
        stdout=subprocess.PIPE,
    ) as reader:
        write_text(tmp_path / "name.txt", "new")
        assert reader.communicate()[0] == "new\n"
    assert (tmp_path / "name.txt").is_fifo() or (tmp_path / "file").read_text() == "new"
    assert (tmp_path / "name.txt").is_fifo() or (tmp_path / "name.txt").is_symlink()


def test_a_named_pipe_is_no_input_and_an_input_is_no_output(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(AuditError, match="named pipe"):
        read_json(tmp_path / "pipe")
    with pytest.raises(AuditError, match="that is read"):
        check_output(tmp_path / "x/../a.json", [tmp_path / "a.json"])
    check_output(tmp_path / "b.json", [tmp_path / "a.json"])
