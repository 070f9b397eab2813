"""Settings: command line over environment over file; every wrong value is refused by the name of its place."""

from pathlib import Path

import pytest

from rampmeter.core.errors import ConfigError
from rampmeter_coordinator.settings import read_settings

FILE = """
[server]
host = "0.0.0.0"
port = 9000
store = "memory"
fresh = true

[pools.lustre]
capacity = "2TB/s"
utilisation = 0.9
ttl = "1m"
max_writers = 8
read_capacity = "3TB/s"
shared_reads = false
max_streams = 4
max_per_tenant = "500GB/s"
enforced_share = 0.25
max_stall_share = 0.035
base_price = 1e-9

[pools.scratch]
capacity = "100 GB/s"
"""


@pytest.fixture
def file(tmp_path):
    """Writes a settings file and gives its path."""

    def write(text):
        path = tmp_path / "rampmeter.toml"
        path.write_text(text)
        return str(path)

    return write


def test_without_anything_there_is_one_small_pool_and_a_warning(caplog):
    """One pool `default` with 1 GB/s, loopback, port 8000, SQLite in the state directory of the user."""
    settings = read_settings({}, {})
    assert [(pool.name, pool.capacity_bytes_per_s) for pool in settings.pools] == [("default", 10**9)]
    assert (settings.host, settings.port, settings.store) == ("127.0.0.1", 8000, "sqlite")
    assert settings.data_dir == Path.home() / ".local/state/rampmeter"
    assert not settings.fresh
    assert "no pool is set" in caplog.text


def test_a_misspelt_variable_is_warned_of(caplog):
    """A slip in RAMPMETER_CAPACITY must not pass in silence; variables of others with the same prefix may."""
    read_settings(
        {}, {"RAMPMETER_CAPACTY": "2TB/s", "RAMPMETER_POOL": "lustre", "RAMPMETER_COORDINATOR": "x"}
    )
    warned = [record.message for record in caplog.records if "not known" in record.message]
    assert warned == ["variable RAMPMETER_CAPACTY is not known and is ignored; is RAMPMETER_CAPACITY meant?"]


def test_a_file_is_read(file):
    """Server and pools come from the file."""
    settings = read_settings({"config": file(FILE)}, {})
    assert (settings.host, settings.port, settings.store, settings.fresh) == ("0.0.0.0", 9000, "memory", True)
    lustre, scratch = settings.pools
    assert (lustre.name, lustre.capacity_bytes_per_s, lustre.budget_bytes_per_s) == (
        "lustre",
        2 * 10**12,
        1_800_000_000_000,
    )
    assert (lustre.ttl_s, lustre.max_writers) == (60.0, 8)
    assert (lustre.read_capacity_bytes_per_s, lustre.shared_reads) == (3 * 10**12, False)
    assert (lustre.max_streams, lustre.max_tenant_bytes_per_s, lustre.enforced_share) == (4, 5 * 10**11, 0.25)
    assert (lustre.max_stall_share, lustre.base_price_gpu_s_per_byte) == (0.035, 1e-9)
    assert (scratch.name, scratch.capacity_bytes_per_s) == ("scratch", 10**11)
    assert (scratch.max_stall_share, scratch.base_price_gpu_s_per_byte) == (None, 0.0)


def test_command_line_over_environment_over_file(file):
    """The nearer one wins, value by value."""
    environ = {"RAMPMETER_CONFIG": file(FILE), "RAMPMETER_PORT": "9001", "RAMPMETER_HOST": "::1"}
    settings = read_settings({"port": "9002"}, environ)
    assert (settings.port, settings.host, settings.store) == (9002, "::1", "memory")


def test_variables_alone_are_enough(tmp_path):
    """A container needs no file."""
    environ = {
        "RAMPMETER_CAPACITY": "1.5TB/s",
        "RAMPMETER_DATA_DIR": str(tmp_path),
        "RAMPMETER_STORE": "redis://:secret@redis:6379/0",
        "RAMPMETER_SYNCHRONOUS": "FULL",
        "RAMPMETER_FRESH": "yes",
    }
    settings = read_settings({}, environ)
    assert settings.pools[0].capacity_bytes_per_s == 1_500_000_000_000
    assert (settings.data_dir, settings.synchronous, settings.fresh) == (tmp_path, "full", True)
    assert "secret" not in repr(settings)


def test_the_state_directory_follows_the_system():
    """XDG_STATE_HOME is where state belongs."""
    assert read_settings({}, {"XDG_STATE_HOME": "/state"}).data_dir == Path("/state/rampmeter")


def test_a_capacity_overrides_the_default_pool_of_a_file(file):
    """RAMPMETER_CAPACITY is for pool `default` only."""
    environ = {"RAMPMETER_CAPACITY": "3GB/s"}
    settings = read_settings({"config": file('[pools.default]\ncapacity = "1GB/s"\nttl = "20s"')}, environ)
    assert [(pool.capacity_bytes_per_s, pool.ttl_s) for pool in settings.pools] == [(3 * 10**9, 20.0)]
    with pytest.raises(ConfigError, match="RAMPMETER_CAPACITY: is for pool default, but the file has"):
        read_settings({"config": file(FILE)}, environ)


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("RAMPMETER_PORT", "x", "an integer from 0 to 65535"),
        ("RAMPMETER_PORT", "70000", "an integer from 0 to 65535"),
        ("RAMPMETER_PORT", "-1", "an integer from 0 to 65535"),
        ("RAMPMETER_HOST", " ", "text"),
        ("RAMPMETER_STORE", "postgres://x", "redis://"),
        ("RAMPMETER_STORE", "sqllite", "sqlite, memory"),
        ("RAMPMETER_SYNCHRONOUS", "off", "normal or full"),
        ("RAMPMETER_FRESH", "maybe", "true or false"),
        ("RAMPMETER_CAPACITY", "2TB", "no rate"),
        ("RAMPMETER_CAPACITY", "100Gb/s", "in bits: write bytes, here 12.5 GB"),
        ("RAMPMETER_CAPACITY", "0GB/s", "above 0"),
        ("RAMPMETER_CONFIG", "/nowhere/at/all.toml", "cannot be read"),
    ],
)
def test_bad_variables_are_refused_by_name(name, value, says):
    """The message begins with the variable and says what is expected."""
    with pytest.raises(ConfigError, match=f"variable {name}: ") as caught:
        read_settings({}, {name: value})
    assert says in str(caught.value)


def test_bad_options_are_refused_by_name():
    """The message begins with the option."""
    with pytest.raises(ConfigError, match="option --port: must be an integer"):
        read_settings({"port": "many"}, {})
    with pytest.raises(ConfigError, match="option --capacity: capacity times utilisation is below 1 B/s"):
        read_settings({"capacity": "1B/s"}, {})


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("[server]\nprot = 1", "server: unknown key prot; known are host, port"),
        ("[sever]\nport = 1", ": unknown key sever; known are server, pools"),
        ("server = 1", "server must be a table"),
        ("[server]\nport = true", "server.port: must be an integer"),
        ("[server]\nport = 8000.0", "server.port: must be an integer"),
        ("[server]\nfresh = 1", "server.fresh: must be true or false"),
        ("[server]\nhost = 5", "server.host: must be text"),
        ("[server]\nport = [", "is no TOML"),
        ("[pools]\nlustre = 5", "pools: lustre must be a table"),
        ('[pools."a b"]\ncapacity = "1GB/s"', "pools.a b: the name must be text"),
        ("[pools.lustre]", "pools.lustre: capacity is missing"),
        ("[pools.lustre]\ncapacity = 5", "pools.lustre.capacity: must be a rate in quotes"),
        ('[pools.lustre]\ncapacity = "fast"', 'pools.lustre.capacity: "fast" is no rate'),
        ('[pools.l]\ncapacity = "1B/s"', "pools.l: capacity times utilisation is below 1 B/s"),
        ('[pools.l]\ncapacity = "1GB/s"\nread_capacity = "1B/s"', "is below 1 B/s: nobody would ever"),
        ('[pools.lustre]\ncapacitiy = "1GB/s"', "pools.lustre: unknown key capacitiy"),
        ('[pools.l]\ncapacity = "1GB/s"\nutilisation = 1.5', "pools.l.utilisation: must be a number above 0"),
        ('[pools.l]\ncapacity = "1GB/s"\nutilisation = nan', "pools.l.utilisation: must be a number above 0"),
        ('[pools.l]\ncapacity = "1GB/s"\nttl = 30', "pools.l.ttl: must be a duration in quotes"),
        ('[pools.l]\ncapacity = "1GB/s"\nttl = "1s"', "pools.l.ttl: must be from 10 s to 3600 s"),
        ('[pools.l]\ncapacity = "1GB/s"\nmax_writers = 0', "pools.l.max_writers: must be an integer"),
        (
            '[pools.l]\ncapacity = "1GB/s"\nmax_stall_share = 0',
            "pools.l.max_stall_share: must be a number above 0 and at most 1",
        ),
        (
            '[pools.l]\ncapacity = "1GB/s"\nbase_price = -1e-9',
            "pools.l.base_price: must be a number from 0 to 1",
        ),
        (
            '[pools.l]\ncapacity = "1GB/s"\nbase_price = "cheap"',
            "pools.l.base_price: must be a number from 0 to 1",
        ),
        (
            '[pools.l]\ncapacity = "1GB/s"\nenforced_share = 1.5',
            "pools.l.enforced_share: must be a number from 0 to 1",
        ),
    ],
)
def test_bad_files_are_refused_by_file_and_key(file, text, where):
    """The message names the file and the key."""
    path = file(text)
    with pytest.raises(ConfigError) as caught:
        read_settings({"config": path}, {})
    assert str(caught.value).startswith(path)
    assert where in str(caught.value)


def test_where_others_reach_this_replica():
    """A URL of scheme, host and port; a slash at its end does not matter; none means the address it listens on."""
    settings = read_settings({"advertise_url": "http://10.0.0.5:8000/"}, {})
    assert settings.advertise_url == "http://10.0.0.5:8000"
    assert read_settings({}, {}).advertise_url is None


@pytest.mark.parametrize("value", ["10.0.0.5:8000", "ftp://10.0.0.5", "http://", "http://10.0.0.5/api", ""])
def test_an_advertised_url_that_is_none_is_refused(value):
    """A standby would send every request there."""
    with pytest.raises(ConfigError, match="RAMPMETER_ADVERTISE_URL: must be"):
        read_settings({}, {"RAMPMETER_ADVERTISE_URL": value})


@pytest.mark.parametrize(
    "store", ["redis://h/0", "rediss://h/0", "unix:///s", "redis+sentinel://h:1,i:2/s/0"]
)
def test_every_kind_of_redis_url_is_a_store(store):
    """Plain, encrypted, a socket, and behind Sentinel."""
    assert read_settings({"store": store}, {}).store == store
