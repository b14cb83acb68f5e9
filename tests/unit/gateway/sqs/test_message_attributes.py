"""Message digests, compared with those of AWS."""

from penstock.gateway.sqs.message_attributes import AttributeValue, digest_attributes, digest_body


def number(text: str) -> AttributeValue:
    return AttributeValue("Number", string_value=text)


def test_body_digest_is_its_md5() -> None:
    assert digest_body("derp") == "58fd9edd83341c29f1aebba81c31e257"
    assert digest_body("This is a test message") == "fafb00f5732ab283681e124bf8747ed1"


def test_attribute_digest_equals_the_one_of_aws() -> None:
    assert (
        digest_attributes({"timestamp": number("1493147359900")})
        == "235c5c510d26fb653d073faed50ae77c"
    )
    assert (
        digest_attributes({"timestamp": number("1493147359901")})
        == "994258b45346a2cc3f9cbb611aa7af30"
    )


def test_attribute_digest_is_independent_of_order() -> None:
    attributes = {
        "ccc": AttributeValue("String", "testjunk"),
        "aaa": AttributeValue("Binary", binary_value=b"\x02\x03\x04"),
        "zzz": number("0230.01"),
        "öther_encodings": AttributeValue("String", "T\xfcst"),
    }
    expected = "8ae21a7957029ef04146b42aeaa18a22"
    assert digest_attributes(attributes) == expected
    assert digest_attributes(dict(reversed(attributes.items()))) == expected
