"""Node configuration: flags over file over defaults, and refusals."""

from pathlib import Path

import pytest

from penstock.cluster.configs.effective_configs import InvalidConfig
from penstock.node.config import NodeConfig, load, read_file
from penstock.runtime.etcd.config import EtcdConfig


def write(path: Path, text: str) -> str:
    file = path / "penstock.toml"
    file.write_text(text)
    return str(file)


def test_empty_config_has_the_defaults() -> None:
    assert load(None, {}, {}) == NodeConfig()


def test_flags_override_the_file_and_the_file_overrides_defaults(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        'data = "/somewhere"\nkafka-port = 1111\nhttp-port = 2222\nnum.partitions = 6\n'
        '"log.retention.hours" = 72\nauto.create.topics.enable = false\n',
    )
    flags = {"kafka_port": 3333, "http_port": None, "host": None}
    config = load(path, flags, {"num.partitions": "9"})
    assert config == NodeConfig(
        data_dir="/somewhere",
        kafka_port=3333,
        http_port=2222,
        overrides={
            "num.partitions": "9",
            "log.retention.hours": "72",
            "auto.create.topics.enable": "false",
        },
    )


@pytest.mark.parametrize("name", ["node.id", "node-id"])
def test_node_id_is_accepted_under_both_names(tmp_path: Path, name: str) -> None:
    assert load(write(tmp_path, f"{name} = 7\n"), {}, {}).node_id == 7


def test_node_id_of_a_set_option_is_not_an_override() -> None:
    config = load(None, {}, {"node.id": "4"})
    assert (config.node_id, config.overrides) == (4, {})


@pytest.mark.parametrize("name", ["log.dirs", "log.dir"])
def test_kafka_name_of_the_data_directory_is_accepted(tmp_path: Path, name: str) -> None:
    told = load(None, {}, {name: "/elsewhere"})
    assert (told.data_dir, told.overrides) == ("/elsewhere", {})
    assert load(write(tmp_path, f'{name} = "/elsewhere"\n'), {}, {}).data_dir == "/elsewhere"
    assert load(write(tmp_path, f'{name} = "/a"\n'), {"data_dir": "/b"}, {}).data_dir == "/b"


def test_broker_id_is_accepted_for_the_node_id() -> None:
    config = load(None, {}, {"broker.id": "4"})
    assert (config.node_id, config.overrides) == (4, {})


def test_values_under_two_names_must_agree(tmp_path: Path) -> None:
    assert load(None, {"data_dir": "/a"}, {"log.dirs": "/a"}).data_dir == "/a"
    with pytest.raises(InvalidConfig, match=r"--data is /a, but log\.dirs is /b"):
        load(None, {"data_dir": "/a"}, {"log.dirs": "/b"})
    with pytest.raises(InvalidConfig, match=r"node-id is 3, but broker\.id is 4"):
        load(write(tmp_path, "node-id = 3\nbroker.id = 4\n"), {}, {})
    with pytest.raises(InvalidConfig, match=r"invalid log\.dirs .* must name one directory"):
        load(None, {}, {"log.dirs": "/a,/b"})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("num.partition = 3", "did you mean 'num.partitions'"),
        ("kafka_port = 3", "did you mean 'kafka-port'"),
        ("num.partitions = 'many'", "num.partitions"),
        ("num.partitions = 0", "num.partitions"),
        ("kafka-port = 'many'", "kafka-port must be a whole number"),
        ("kafka-port = 90.92", "kafka-port must be a whole number"),
        ("kafka-port = true", "kafka-port must be a whole number"),
        ("node-id = [1]", "node-id must be a whole number"),
        ("num.partitions =", "not valid TOML"),
    ],
)
def test_invalid_file_is_refused_in_one_line(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(InvalidConfig) as wrong:
        load(write(tmp_path, text), {}, {})
    assert said in str(wrong.value)
    assert "\n" not in str(wrong.value).strip()


def test_missing_or_binary_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match="cannot read"):
        read_file(str(tmp_path / "none.toml"))
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InvalidConfig, match="not valid TOML"):
        read_file(str(binary))


@pytest.mark.parametrize(
    ("flags", "sets", "said"),
    [
        ({"kafka_port": 65536}, {}, "choose 0 to 65535"),
        ({"http_port": -1}, {}, "choose 0 to 65535"),
        ({"node_id": -1}, {}, "choose 0 or more"),
        ({"kafka_port": 9000, "http_port": 9000}, {}, "both 9000"),
        ({"kafka_port": 9000}, {"listeners": "SSL://:9093"}, "leave --kafka-port out"),
        ({}, {"num.partitons": "3"}, "did you mean 'num.partitions'"),
        ({}, {"num.partitions": "three"}, "num.partitions"),
        ({}, {"node.id": "one"}, "node.id must be a whole number"),
    ],
)
def test_invalid_flag_is_refused(flags: dict[str, int], sets: dict[str, str], said: str) -> None:
    with pytest.raises(InvalidConfig, match=said):
        load(None, flags, sets)


def test_port_may_be_given_twice() -> None:
    listeners = "PLAINTEXT://127.0.0.1:9092, SSL://:9093"
    assert load(None, {"kafka_port": 9092}, {"listeners": listeners}).kafka_port == 9092


def test_both_ports_may_be_dynamic() -> None:
    config = load(None, {"kafka_port": 0, "http_port": 0}, {})
    assert (config.kafka_port, config.http_port) == (0, 0)


def test_lists_and_booleans_become_config_text(tmp_path: Path) -> None:
    path = write(
        tmp_path, 'log.cleanup.policy = ["compact", "delete"]\nlog.cleaner.enable = true\n'
    )
    assert read_file(path)[1] == {
        "log.cleanup.policy": "compact,delete",
        "log.cleaner.enable": "true",
    }


# -- nodes of a cluster -----------------------------------------------------------------------

CLUSTERED = """
node-id = 2
host = "0.0.0.0"
advertised-host = "two.example"
rack = "east"
[etcd]
endpoints = ["http://one:2379", "https://two:2379"]
prefix = "/somewhere"
user = "penstock"
password = "secret"
timeout-ms = 2500
"""


def test_cluster_node_reads_its_etcd_section(tmp_path: Path) -> None:
    config = load(write(tmp_path, CLUSTERED), {}, {})
    assert config.etcd == EtcdConfig(
        ("http://one:2379", "https://two:2379"),
        prefix="/somewhere",
        user="penstock",
        password="secret",
        timeout_ms=2500,
    )
    assert config.advertised_host == "two.example"
    assert config.overrides == {"broker.rack": "east"}


def test_single_endpoint_needs_no_list(tmp_path: Path) -> None:
    config = load(write(tmp_path, '[etcd]\nendpoints = "http://one:2379"\n'), {}, {})
    assert config.etcd == EtcdConfig(("http://one:2379",))


def test_missing_section_means_no_etcd(tmp_path: Path) -> None:
    assert load(write(tmp_path, "node-id = 1\n"), {}, {}).etcd is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[etcd]\n", "missing etcd endpoint"),
        ('[etcd]\nendpoints = ["ftp://one"]\n', "use the form http://host:2379"),
        ('[etcd]\nendpoint = ["http://one:2379"]\n', "did you mean 'etcd.endpoints'"),
        ('[etcd]\nendpoints = ["http://a:1"]\ntimeout-ms = "soon"\n', "must be a whole number"),
        ('[etcd]\nendpoints = ["http://a:1"]\nprefix = "x"\n', "must begin"),
        ('host = "0.0.0.0"\n[etcd]\nendpoints = ["http://a:1"]\n', "set advertised-host"),
    ],
)
def test_invalid_etcd_section_is_refused_in_one_line(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(InvalidConfig) as wrong:
        load(write(tmp_path, text), {}, {})
    assert said in str(wrong.value)
    assert "\n" not in str(wrong.value)


def test_password_is_never_shown(tmp_path: Path) -> None:
    assert "secret" not in repr(load(write(tmp_path, CLUSTERED), {}, {}))
