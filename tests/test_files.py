"""Files appear whole or not at all, and locks end with their holder."""

import errno
import os
import resource
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from fa_audit.core.errors import AuditError
from fa_audit.core.files import (
    check_output,
    check_signature,
    exclusive,
    read_json,
    remove_leftovers,
    signed,
    write_json,
    write_text,
)
from fa_audit.core.folder import check_writable
from fa_audit.data.dataset import load_dataset
from fa_audit.training.checkpoint import load_checkpoint


def python(program, **options):
    return subprocess.Popen([sys.executable, "-c", program], text=True, **options)


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    path = tmp_path / "table.csv"
    write_text(path, "old")

    def fail(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(AuditError, match=r"table.csv: not written .*Free some space"):
        write_text(path, "new")
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]


def test_a_written_file_has_the_permissions_of_any_other(tmp_path):
    write_text(tmp_path / "a", "x")
    (tmp_path / "b").write_text("x")
    modes = {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert len(modes) == 1


def test_a_killed_writer_leaves_the_old_file_and_a_leftover_that_can_be_removed(tmp_path):
    path = tmp_path / "table.csv"
    write_text(path, "old")
    program = (
        "import os, signal; from fa_audit.core.files import write_text;"
        "os.fsync = lambda descriptor: os.kill(os.getpid(), signal.SIGKILL);"
        f"write_text({str(path)!r}, 'new')"
    )
    assert python(program).wait() == -9
    assert path.read_text() == "old" and len(list(tmp_path.iterdir())) == 2
    remove_leftovers(path)
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    "touch",
    [
        read_json,
        load_dataset,
        load_checkpoint,
        lambda path: write_text(path, ""),
        lambda path: exclusive(path).__enter__(),
    ],
)
def test_too_many_open_files_are_no_damage(tmp_path, touch):
    path = tmp_path / "file"
    path.write_text("whole")
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
    try:
        with pytest.raises(AuditError) as caught:
            touch(path)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert "ulimit -n" in str(caught.value) and "delete" not in str(caught.value)


def test_json_is_whole_and_without_nan(tmp_path):
    path = tmp_path / "a.json"
    with pytest.raises(ValueError, match="JSON"):
        write_json(path, {"x": float("nan")})
    assert not path.exists()
    write_json(path, {"x": 1})
    assert read_json(path) == {"x": 1}
    for text in ('{"x": ', "", "NaN"):
        path.write_text(text)
        with pytest.raises(AuditError, match=r"a.json: found .*; expected a b"):
            read_json(path, "a b")


def test_a_signature_covers_the_entries_that_it_names():
    record = signed({"a": [1], "b": 2.5})
    for unchanged in (record, record | {"later": 1}, {"a": "without signature"}):
        check_signature(unchanged, "file")
    for changed in (record | {"a": [2]}, record | {"content": 1}, {"content": record["content"]}):
        with pytest.raises(AuditError, match="file: "):
            check_signature(changed, "file")


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
            assert f"process {holder.pid} on " in caplog.text and str(lock) in caplog.text


@pytest.mark.parametrize("make", [Path.touch, lambda path: path.symlink_to("not mounted")])
def test_what_stands_in_the_place_of_a_folder_is_named_before_any_job(tmp_path, make):
    (tmp_path / "results").mkdir()
    check_writable([tmp_path / "results", tmp_path / "absent"])
    make(tmp_path / "file")
    with pytest.raises(AuditError, match="file: found no folder"):
        check_writable([tmp_path / "results", tmp_path / "file"])


def test_a_link_keeps_its_name_and_its_target_is_replaced(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "file")
    write_text(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "file").read_text() == "new"


def test_a_named_pipe_takes_the_content_and_is_no_input(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(AuditError, match="named pipe"):
        read_json(pipe)
    with python(f"print(open({str(pipe)!r}).read())", stdout=subprocess.PIPE) as reader:
        write_text(pipe, "new")
        assert reader.communicate()[0] == "new\n"
    assert pipe.is_fifo()


def test_an_input_is_no_output(tmp_path):
    check_output(tmp_path / "b.json", [tmp_path / "a.json"])
    with pytest.raises(AuditError, match="input and output"):
        check_output(tmp_path / "x/../a.json", [tmp_path / "a.json"])
