"""Uses the proxy in front of moto with boto3, so that the proxy is tested by a client of AWS.

    client.py PROXY ACCESS_KEY SECRET_KEY

Prints one line per check. The first difference ends the program with an error.
"""

import datetime
import json
import sys
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import boto3
import botocore.auth
from botocore import UNSIGNED
from botocore.config import Config
from botocore.exceptions import ClientError, HTTPClientError

REGION = "eu-west-1"
# moto has this image.
IMAGE = "ami-760aaa0f"
# One attempt, so that each check sees the answer to its own request.
ONCE = {"retries": {"total_max_attempts": 1}}

PROXY, ACCESS_KEY, SECRET_KEY = sys.argv[1:]


def control(method, path, body=None):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(PROXY + "/_control" + path, data, method=method)
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)


def client(service="ec2", url=PROXY, key=ACCESS_KEY, secret=SECRET_KEY, token=None, region=REGION):
    return boto3.client(
        service,
        endpoint_url=url,
        region_name=region,
        aws_access_key_id=key,
        aws_secret_access_key=secret,
        aws_session_token=token,
        config=Config(**ONCE),
    )


def check(what, actual, expected):
    if actual != expected:
        raise SystemExit(f"FAILED {what}: expected {expected!r}, got {actual!r}")
    print(f"ok {what}: {actual!r}")


def refused(what, code, status, request):
    """Sends a request that must be refused."""
    try:
        request()
    except ClientError as error:
        answer = error.response
        got = (answer["Error"]["Code"], answer["ResponseMetadata"]["HTTPStatusCode"])
        check(what, got, (code, status))
        return answer
    raise SystemExit(f"FAILED {what}: expected the code {code}, got success")


def fault(action, fault, times=1):
    control("POST", "/faults", {"action": action, "times": times, "fault": fault})


EC2 = client()
# moto itself, which shows every instance.
TRUTH = client(url=control("GET", "")["backend"])


def run(token, data="a", ec2=EC2):
    started = ec2.run_instances(
        ImageId=IMAGE,
        InstanceType="m5.large",
        MinCount=1,
        MaxCount=1,
        ClientToken=token,
        UserData=data,
        TagSpecifications=[{"ResourceType": "instance", "Tags": [{"Key": "token", "Value": token}]}],
    )
    return started["Instances"][0]["InstanceId"]


def found(ec2=EC2, **query):
    pages = ec2.get_paginator("describe_instances").paginate(**query)
    return [one for page in pages for group in page["Reservations"] for one in group["Instances"]]


def ids(instances):
    return [one["InstanceId"] for one in instances]


def by(name, value):
    return {"Filters": [{"Name": name, "Values": [value]}]}


def exist(token):
    """Number of instances of a token that moto ever had."""
    return len(found(TRUTH, **by("tag:token", token)))


def signatures():
    check("a right signature", found(), [])
    check("a right signature for STS", client("sts").get_caller_identity()["Account"], "123456789012")
    wrong = client(secret="wrong")
    refused("a wrong secret key", "SignatureDoesNotMatch", 403, wrong.describe_instances)
    refused("its creation", "SignatureDoesNotMatch", 403, lambda: run("wrong", ec2=wrong))
    check("instances of the wrong key", exist("wrong"), 0)
    unknown = client(key="AKIAUNKNOWN")
    refused("an unknown access key", "AuthFailure", 401, unknown.describe_instances)
    sts = client("sts", key="AKIAUNKNOWN")
    refused("an unknown access key for STS", "InvalidClientTokenId", 403, sts.get_caller_identity)
    control("PUT", "/keys/AKIASECOND", {"secretKey": "second"})
    second = client(key="AKIASECOND", secret="second")
    check("a second key", found(second), [])
    control("DELETE", "/keys/AKIASECOND")
    refused("a revoked key", "AuthFailure", 401, second.describe_instances)


def dates():
    """Signs with another clock."""
    now = botocore.auth.get_current_datetime
    for minutes in (-16, 16):
        shift = datetime.timedelta(minutes=minutes)
        botocore.auth.get_current_datetime = lambda *a, **k: now(*a, **k) + shift
        try:
            what = f"a signature of {minutes} minutes"
            refused(what, "RequestExpired", 400, EC2.describe_instances)
            sts = client("sts")
            refused(what + " for STS", "SignatureDoesNotMatch", 403, sts.get_caller_identity)
        finally:
            botocore.auth.get_current_datetime = now


def workload():
    config = Config(signature_version=UNSIGNED, **ONCE)
    sts = boto3.client("sts", endpoint_url=PROXY, region_name=REGION, config=config)
    keys = sts.assume_role_with_web_identity(
        RoleArn="arn:aws:iam::123456789012:role/machines",
        RoleSessionName="lane",
        WebIdentityToken="a-token",
    )["Credentials"]
    given = {"key": keys["AccessKeyId"], "secret": keys["SecretAccessKey"]}
    check("temporary keys", found(client(token=keys["SessionToken"], **given)), [])
    for token in (None, "another"):
        ec2 = client(token=token, **given)
        refused(f"the session token {token}", "InvalidClientTokenId", 403, ec2.describe_instances)


def tokens():
    first = run("one")
    check("a repeated token", run("one"), first)
    check("instances of the token", exist("one"), 1)
    shown = found(**by("client-token", "one"))
    check("the filter client-token", [(one["InstanceId"], one["ClientToken"]) for one in shown], [(first, "one")])
    check("the filter with another token", found(**by("client-token", "none")), [])
    refused("other user data", "IdempotentParameterMismatch", 400, lambda: run("one", "b"))
    with ThreadPoolExecutor(8) as pool:
        at_once = set(pool.map(lambda _: run("many", ec2=client()), range(8)))
    check("eight requests at once", (len(at_once), exist("many")), (1, 1))
    elsewhere = run("one", ec2=client(region="us-east-1"))
    check("another region has another instance", elsewhere != first, True)
    EC2.terminate_instances(InstanceIds=[first])
    for data in ("a", "b"):
        refused("a terminated instance", "IdempotentInstanceTerminated", 400, lambda: run("one", data))
    check("instances of the token", exist("one"), 1)
    refused("a long token", "InvalidParameterValue", 400, lambda: run("x" * 65))


def faults():
    cases = [
        ("InsufficientInstanceCapacity", 500),
        ("InsufficientFreeAddressesInSubnet", 400),
        ("InstanceLimitExceeded", 400),
        ("RequestLimitExceeded", 503),
    ]
    for code, status in cases:
        fault("RunInstances", {"kind": "refuse", "code": code})
        refused("a refused creation", code, status, lambda: run("refused"))
    check("instances after refusals", exist("refused"), 0)
    fault("DescribeInstances", {"kind": "refuse", "code": "Throttling", "status": 400, "retryAfterSeconds": 7})
    headers = refused("a throttled read", "Throttling", 400, EC2.describe_instances)["ResponseMetadata"]["HTTPHeaders"]
    check("its wait", headers.get("retry-after"), "7")
    fault("RunInstances", {"kind": "effectThenError"})
    refused("an error after the effect", "InternalError", 500, lambda: run("error"))
    fault("RunInstances", {"kind": "effectThenClose"})
    try:
        run("close")
        raise SystemExit("FAILED a lost answer: expected a broken connection, got success")
    except HTTPClientError as error:
        print(f"ok a lost answer: {type(error).__name__}")
    for token in ("error", "close"):
        check("instances after the effect", exist(token), 1)
        check("the repeated request", [run(token)], ids(found(TRUTH, **by("tag:token", token))))
        check("instances after the repeated request", exist(token), 1)
    check("rules that are left", control("GET", "/faults"), [])


def delays():
    control("PUT", "/delay", {"inListsSeconds": 300, "byIdSeconds": 60})
    new = run("late")
    check("a list with a filter", found(**by("tag:token", "late")), [])
    check("the filter client-token", found(**by("client-token", "late")), [])
    check("a list of all", new in ids(found()), False)
    named = {"InstanceIds": [new]}
    refused("a read by id", "InvalidInstanceID.NotFound", 400, lambda: EC2.describe_instances(**named))
    check("the token", run("late"), new)
    control("POST", "/advance", {"seconds": 60})
    check("a read by id later", ids(found(**named)), [new])
    check("a list then", found(**by("tag:token", "late")), [])
    control("POST", "/advance", {"seconds": 240})
    check("a list later", ids(found(**by("tag:token", "late"))), [new])
    control("DELETE", "/delay")


def pages():
    started = [run(f"page-{number}") for number in range(12)]
    few = {"PaginationConfig": {"PageSize": 5}}
    check("instances on three pages", set(started) <= set(ids(found(**few))), True)


def main():
    control("PUT", f"/keys/{ACCESS_KEY}", {"secretKey": SECRET_KEY})
    for part in (signatures, dates, workload, tokens, faults, delays, pages):
        print(f"-- {part.__name__}")
        part()


if __name__ == "__main__":
    main()
