"""Jobs from S3 to S3 over a real S3 API: listings, manifests, uploads, and an S3 that fails in the middle of each."""

from __future__ import annotations

import dataclasses
import itertools
import json
from pathlib import Path

import pytest
from faulty_proxy import AFTER, BEFORE, CUT, FaultyProxy
from runner import LINES, Moto, Runner, clean_environment
from stand_in_container import StandIn

LARGE = b"".join(b"%d %s\n" % (number, b"y" * 2_000) for number in range(12_000))
"""24 MB: an answer that repeats it takes several parts."""
ECHO = ("--content-type", "text/plain", "--split-type", "Line", "--assemble-with", "Line", "--max-payload-in-mb", 1)


def echo(body: bytes) -> bytes:
    return body.rstrip(b"\n")


def behind(run: Runner, url: str) -> Runner:
    return dataclasses.replace(run, environment=clean_environment(AWS_ENDPOINT_URL=url))


def test_every_object_below_a_prefix_has_its_output_and_what_lies_beside_it_has_none(run_s3: Runner, aws: Moto) -> None:
    aws.put("prefix", in__a_jsonl=b"1\n22\n", in__deep__b_jsonl=b"333\n", other_jsonl=b"x\n", in__empty_jsonl=b"")
    aws.client.put_object(Bucket="prefix", Key="in/folder/", Body=b"")
    with StandIn() as container:
        done = run_s3("--input", "s3://prefix/in/", "--output", "s3://prefix/out", *LINES, "--local", container.url)
    assert done.returncode == 0, done.stderr
    assert aws.keys("prefix", "out") == ["out/a.jsonl.out", "out/deep/b.jsonl.out", "out/empty.jsonl.out"]
    assert aws.get("prefix", "out/a.jsonl.out") == b'{"size":1}\n{"size":2}\n'
    assert aws.get("prefix", "out/empty.jsonl.out") == b""


def test_a_manifest_names_the_objects_and_their_order(run_s3: Runner, aws: Moto) -> None:
    manifest = [{"prefix": "s3://manifest/data/"}, "b/x.jsonl", "a.jsonl"]
    aws.put("manifest", data__a_jsonl=b"1\n", data__b__x_jsonl=b"22\n", data__c_jsonl=b"333\n", list=json.dumps(manifest))
    job = ("--output", "s3://manifest/out", *LINES, "--data-type", "ManifestFile")
    with StandIn() as container:
        done = run_s3("--input", "s3://manifest/list", *job, "--local", container.url)
        assert container.bodies == [b"22\n", b"1\n"] or len(container.bodies) == 2
    assert done.returncode == 0, done.stderr
    assert aws.keys("manifest", "out") == ["out/a.jsonl.out", "out/b/x.jsonl.out"]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b'["a"]', "is no manifest"),
        (b"not json", "is no manifest"),
        (b'[{"prefix": "s3://broken/"}, "gone"]', "s3://broken/gone, which s3://broken/list names, cannot be found"),
    ],
)
def test_a_manifest_that_cannot_be_followed_stops_the_job_with_a_sentence(
    run_s3: Runner, aws: Moto, content: bytes, said: str
) -> None:
    aws.put("broken", list=content)
    job = ("--output", "s3://broken/out", *LINES, "--data-type", "ManifestFile", "--local", "http://127.0.0.1:9")
    done = run_s3("--input", "s3://broken/list", *job)
    assert done.returncode == 1
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_a_listing_of_thousands_of_keys_is_whole_though_s3_fails_in_the_middle_of_it(
    run_s3: Runner, aws: Moto, tmp_path: Path
) -> None:
    aws.put("many")
    for number in range(1_200):
        aws.client.put_object(Bucket="many", Key=f"in/{number:04}", Body=b"x")
    spoilt: set[str] = set()

    def rule(number: int, method: str, path: str) -> str | None:
        if "list-type=2" in path and path not in spoilt:
            spoilt.add(path)
            return BEFORE if len(spoilt) % 2 else CUT
        return None

    with FaultyProxy(aws.url, rule, status=503) as proxy:
        done = behind(run_s3, proxy.url)("--input", "s3://many/in/", "--output", tmp_path, *LINES, "--local", "--dry-run")
        assert proxy.spoilt == 2
    assert done.returncode == 0, done.stderr
    assert [line.split()[1] for line in done.stdout.splitlines() if "→" in line] == [
        f"s3://many/in/{number:04}" for number in range(1_200)
    ]


@pytest.mark.parametrize("how", [BEFORE, AFTER, CUT])
def test_an_s3_that_fails_while_it_reads_and_writes_loses_and_doubles_nothing(run_s3: Runner, aws: Moto, how: str) -> None:
    bucket = f"unsteady-{how}"
    aws.put(bucket, in__a=LARGE, in__b=b"small\n")

    calls = itertools.count(1)

    def rule(number: int, method: str, path: str) -> str | None:
        reading, writing = method == "GET" and "/in/" in path, method in ("PUT", "POST")
        spoilable = reading or (writing and how != CUT)  # boto3 reads no answer to a write that has its length
        return how if spoilable and next(calls) % 3 == 1 else None

    with FaultyProxy(aws.url, rule, status=500) as proxy, StandIn(answer=echo, media_type="text/plain") as container:
        done = behind(run_s3, proxy.url)(
            *("--input", f"s3://{bucket}/in/", "--output", f"s3://{bucket}/out", *ECHO, "--local", container.url),
        )
        assert proxy.spoilt >= 1
    assert done.returncode == 0, done.stderr
    assert aws.get(bucket, "out/a.out") == LARGE
    assert aws.get(bucket, "out/b.out") == b"small\n"
    assert aws.unfinished(bucket) == []


def test_an_s3_that_stops_taking_parts_ends_the_job_and_the_next_run_goes_on(run_s3: Runner, aws: Moto) -> None:
    aws.put("full", in__a=LARGE)

    def rule(number: int, method: str, path: str) -> str | None:
        return BEFORE if method == "PUT" and "partNumber=2" in path else None

    with StandIn(answer=echo, media_type="text/plain") as container:
        job = ("--input", "s3://full/in/", "--output", "s3://full/out", *ECHO, "--local", container.url)
        with FaultyProxy(aws.url, rule, status=403) as proxy:
            done = behind(run_s3, proxy.url)(*job)
        assert done.returncode == 1
        assert "s3://full/out/a.out cannot be written" in done.stderr
        assert aws.keys("full", "out") == []
        before = container.asked
        done = run_s3(*job)
        assert done.returncode == 0, done.stderr
        assert container.asked - before < before + 10
    assert aws.get("full", "out/a.out") == LARGE


def test_an_object_that_changes_while_it_is_read_costs_its_file(run_s3: Runner, aws: Moto) -> None:
    aws.put("moving", in__a=LARGE, in__b=b"small\n")
    changed: list[int] = []

    def change(number: int, body: bytes) -> None:
        if not changed:
            changed.append(number)
            aws.client.put_object(Bucket="moving", Key="in/a", Body=LARGE[::-1])

    def rule(number: int, method: str, path: str) -> str | None:
        return CUT if method == "GET" and path.startswith("/moving/in/a") else None  # so that it is opened again

    with FaultyProxy(aws.url, rule) as proxy, StandIn(answer=echo, fault=change, media_type="text/plain") as container:
        job = ("--input", "s3://moving/in/", "--output", "s3://moving/out", *ECHO, "--local", container.url)
        done = behind(run_s3, proxy.url)(*job)
    assert done.returncode == 1
    assert "it has changed or gone since the job began: run the job again" in done.stderr
    assert aws.keys("moving", "out") == ["out/b.out"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--input", "s3://nowhere/in", "--output", "out"), "s3://nowhere/in cannot be listed"),
        (("--input", "s3://here/nothing", "--output", "out"), "holds no object"),
        (("--input", "s3://here/in", "--output", "s3://here/in/out"), "lies below the input"),
        (("--input", "s3://here/in", "--output", "out", "--data-type", "AugmentedManifestFile"), "is not served by this program"),
    ],
)
def test_a_job_that_cannot_be_right_is_refused_in_a_sentence(
    run_s3: Runner, aws: Moto, arguments: tuple[str, ...], said: str
) -> None:
    if "here" not in [bucket["Name"] for bucket in aws.client.list_buckets()["Buckets"]]:
        aws.put("here", **{"in": b"x\n"})
    done = run_s3(*arguments, *LINES, "--local", "http://127.0.0.1:9")
    assert done.returncode == 1
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_errors_are_put_beside_the_output(run_s3: Runner, aws: Moto) -> None:
    aws.put("listed", in__a=b"1\n2\n3\n")
    bad = b'{"error":{"type":"InvalidRecord","message":"made up","record":2}}'
    with StandIn(answer=lambda body: b"{}\n" + bad + b"\n{}") as container:
        done = run_s3("--input", "s3://listed/in/", "--output", "s3://listed/out/", *LINES, "--local", container.url)
    assert done.returncode == 0, done.stderr
    assert aws.get("listed", "out/a.errors.jsonl") == b'{"line": 2, "type": "InvalidRecord", "message": "made up"}\n'
    assert aws.get("listed", "out/a.out") == b"{}\n" + bad + b"\n{}\n"
