"""The history: what is written is what is read, while it is being written."""

from rampmeter_coordinator.demo.history import Chunk, HistoryReader, HistoryWriter, Loss, Started

STARTED = Started(at_s=1.5, job="demo-1", life=1)
CHUNK = Chunk(at_s=3.0, job="demo-1", life=1, begin_s=2.0, num_bytes=7)


def test_records_come_back_as_they_were(tmp_path):
    """Kinds, numbers and exact losses survive the file."""
    writer = HistoryWriter(tmp_path / "a.jsonl")
    loss = Loss(at_s=2.0, job="demo-1", life=1, step=3, loss=(0.1).hex())
    for record in (STARTED, loss, CHUNK):
        writer.write(record)
    assert HistoryReader(tmp_path).new_records() == [STARTED, loss, CHUNK]


def test_a_reader_sees_each_record_once(tmp_path):
    """Following a growing file gives only what is new."""
    writer, reader = HistoryWriter(tmp_path / "a.jsonl"), HistoryReader(tmp_path)
    writer.write(STARTED)
    assert reader.new_records() == [STARTED]
    writer.write(CHUNK)
    assert reader.new_records() == [CHUNK]
    assert reader.new_records() == []


def test_half_a_line_waits_for_its_end(tmp_path):
    """A line that is being written is read when it is whole."""
    path = tmp_path / "a.jsonl"
    HistoryWriter(path).write(STARTED)
    whole = path.read_bytes()
    path.write_bytes(whole + whole[:10])
    reader = HistoryReader(tmp_path)
    assert reader.new_records() == [STARTED]
    path.write_bytes(whole + whole)
    assert reader.new_records() == [STARTED]
