"""Detection of encodings, line counts and media types."""

from __future__ import annotations

from random import Random

import chardet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pydantic_deep import DeepAgentDeps
from pydantic_deep._text.encodings import Text, count_lines, detect_encoding, guess_media_type, parse_text

pytestmark = pytest.mark.anyio

PNG = b'\x89PNG\r\n\x1a\n\0\0\0\rIHDR'


@pytest.mark.parametrize(
    ('data', 'encoding'),
    [
        (b'', 'utf-8'),
        (b'plain', 'utf-8'),
        ('naïve café'.encode(), 'utf-8'),
        (b'\xef\xbb\xbfmarked', 'utf-8-sig'),
        ('wide'.encode('utf-16-le'), None),
        (b'\xff\xfe' + 'wide'.encode('utf-16-le'), 'utf-16'),
        (b'\xfe\xff' + 'wide'.encode('utf-16-be'), 'utf-16'),
        (b'\xff\xfe\0\0' + 'wider'.encode('utf-32-le'), 'utf-32'),
        (b'\0\0\xfe\xff' + 'wider'.encode('utf-32-be'), 'utf-32'),
        (b'\xff\xfeodd', None),
        pytest.param(b'plain,1\n' * 20_000 + 'très bon café\n'.encode('latin-1'), 'cp1252', id='latin-1-far-down'),
        pytest.param(
            b'plain,1,' * 20_000 + 'très bon café, naïve façade. '.encode('latin-1') * 90, 'cp1252', id='one-long-line'
        ),
        pytest.param(
            b'plain,1\n' * 20_000 + 'こんにちは世界。これはテストです。\n'.encode('cp932') * 9_000,
            'cp932',
            id='cp932-far-down',
        ),
        (PNG, None),
        (b'text and then\0binary', None),
    ],
)
def test_encoding_is_detected_or_none(data: bytes, encoding: str | None) -> None:
    assert detect_encoding(data) == encoding


@pytest.mark.parametrize(
    ('codec', 'text'),
    [
        ('cp1252', "L'été dernier, nous avons mangé à la plage."),
        ('cp1252', 'Prénom;Nom\nRené;Lefèvre\n'),
        ('cp1252', '¿Dónde está la estación?'),
        ('cp1252', 'año,país\n2020,España\n'),
        ('cp1252', 'Perché non è così? La città è più bella.'),
        ('cp1252', 'caffè e tè'),
        ('cp1252', 'Rødgrød med fløde på en blå ø.'),
        ('cp1252', 'Århus og København'),
        ('cp1252', 'Räksmörgås på en ö i Västerås'),
        ('cp1252', 'Größe und Menge der Äpfel'),
        ('cp1252', 'Müller;Straße 5\n'),
        ('cp1252', 'Preis: 5 € für Öl\n'),
        ('cp1252', 'Größe'),
        ('cp1252', 'ÄRGER'),
        ('cp1252', 'He said “no” – twice.'),
        ('cp1252', 'at 20 °C\n'),
        ('cp1252', 'A informação não está disponível em São Paulo.'),
        ('cp1252', 'Hyvää päivää, mitä kuuluu?'),
        ('cp1250', 'Zażółć gęślą jaźń, proszę państwa'),
        ('cp1250', 'Łódź i Kraków są piękne'),
        ('cp1250', 'Příliš žluťoučký kůň úpěl ďábelské ódy'),
        ('cp1250', 'Árvíztűrő tükörfúrógép'),
        ('cp1251', 'Съешь же ещё этих мягких булок'),
        ('cp1251', 'Привет, мир'),
        ('cp1251', '# имя = name\nprint("Привет, мир")\n'),
        ('koi8-r', 'Съешь же ещё этих мягких французских булок'),
        ('cp1253', 'Η γρήγορη καφετιά αλεπού πηδάει'),
        ('cp1254', 'Şişlide güzel bir gün, öğretmen çalışıyor'),
        ('cp932', 'こんにちは世界。これはテストです。'),
        ('gb18030', '你好,世界。这是一个测试文件。'),
        ('cp949', '안녕하세요 세계. 이것은 시험입니다.'),
    ],
)
def test_short_text_in_another_encoding_is_decoded_correctly(codec: str, text: str) -> None:
    parsed = parse_text(text.encode(codec))
    assert parsed is not None
    assert parsed.text == text


def test_undecodable_bytes_have_no_encoding(monkeypatch: pytest.MonkeyPatch) -> None:
    # The real detector has an answer for nearly everything, so its `None` and its failure are simulated.
    def detect(data: bytes, **options: object) -> list[dict[str, object]]:
        return [{'encoding': None, 'confidence': 1.0}]

    monkeypatch.setattr(chardet, 'detect_all', detect)
    assert detect_encoding(b'\xff\xff\x81') is None


def test_failing_detector_gives_no_encoding(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(data: bytes, **options: object) -> object:
        raise RuntimeError('broken table')

    monkeypatch.setattr(chardet, 'detect_all', fail)
    assert detect_encoding(b'\xff\xff\x81') is None


@pytest.mark.parametrize('encoding', ['no-such-codec', 'ascii', 'cp932'])
def test_guess_that_does_not_decode_is_ignored(encoding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def detect(data: bytes, **options: object) -> list[dict[str, object]]:
        return [{'encoding': encoding, 'confidence': 0.9}]

    monkeypatch.setattr(chardet, 'detect_all', detect)
    assert detect_encoding(b'\xff\xff\x81') is None


@given(st.binary(max_size=200))
def test_text_round_trips_byte_for_byte(data: bytes) -> None:
    text = parse_text(data)
    if text is not None:
        assert text.encode(text.text) == data
        text.shown.encode()  # it contains no unencodable character


BROKEN = 'Größe, naïve café\n'.encode() + b'caf\xe9 and \xff\n'


@pytest.mark.parametrize(
    ('data', 'text'),
    [
        pytest.param(
            BROKEN,
            Text(text='Größe, naïve café\ncaf\udce9 and \udcff\n', encoding='utf-8', broken=2),
            id='more-characters-than-broken-bytes',
        ),
        pytest.param(
            b'x\n' * 200_000 + BROKEN,
            Text(text='x\n' * 200_000 + 'Größe, naïve café\ncaf\udce9 and \udcff\n', encoding='utf-8', broken=2),
            id='far-down',
        ),
        pytest.param(
            b'\xef\xbb\xbfcaf\xe9',
            Text(text='caf\udce9', encoding='utf-8-sig', mark=b'\xef\xbb\xbf', broken=1),
            id='a-mark-settles-it',
        ),
    ],
)
def test_mostly_valid_utf_8_is_utf_8_and_loses_no_byte(data: bytes, text: Text) -> None:
    assert parse_text(data) == text
    assert text.encode(text.text) == data


NOT_TEXT = [
    bytes([0x80, 0x81, 0x82, 0xFF]),
    b'\xff',
    b'\xe9\n',
    b'\xfe\xed\xfa\xce',
    b'\xfe\xff\xfe\xff\x80',
    b'\xca\xfe\xba\xbe\xde\xad',
    bytes(range(0x80, 0x100)),
    bytes(range(1, 0x100)),
    b'\xc3\xa9\xc3\xa9\xff',  # two characters of UTF-8 and an invalid byte
    b'id \x9b\x9c\xf3\x05\xb1',
    b'\x03\x04\x05\xe9' * 8,
]


@pytest.mark.parametrize('data', NOT_TEXT)
async def test_upload_of_random_bytes_is_binary(data: bytes) -> None:
    """Bytes that decode only by chance in a legacy encoding are binary: no encoding, no lines, no text type."""
    upload = await DeepAgentDeps().upload('b.dat', data)
    assert (upload.encoding, upload.line_count, upload.media_type) == (None, None, 'application/octet-stream')


def test_random_bytes_are_rarely_detected_as_text() -> None:
    """At most one in twenty short random byte strings is detected as text, with or without ASCII."""
    random = Random(16)
    over_ascii = [bytes(random.randrange(0x80, 0x100) for _ in range(random.randrange(1, 40))) for _ in range(150)]
    any_bytes = [b'\x80' + random.randbytes(random.randrange(1, 40)) for _ in range(150)]
    for strings in (over_ascii, any_bytes):
        assert sum(parse_text(data) is not None for data in strings) * 20 <= len(strings)


async def test_upload_with_undecodable_bytes_is_utf_8() -> None:
    upload = await DeepAgentDeps().upload('a.log', BROKEN)
    assert (upload.encoding, upload.line_count) == ('utf-8', 2)


def test_undecodable_bytes_are_shown_as_replacement_characters() -> None:
    text = parse_text(BROKEN)
    assert text is not None
    assert text.shown == 'Größe, naïve café\ncaf\ufffd and \ufffd\n'


@pytest.mark.parametrize('data', [b'\xef\xbb\xbfa\0b', b'\xef\xbb\xbfa\0\xff'])
def test_byte_order_mark_does_not_make_binary_data_text(data: bytes) -> None:
    assert parse_text(data) is None


def test_many_undecodable_bytes_indicate_another_encoding() -> None:
    data = 'très bon café, naïve façade é'.encode('latin-1') + 'éééé'.encode()
    assert detect_encoding(data) != 'utf-8'


@pytest.mark.parametrize(
    ('data', 'lines'),
    [
        (b'', 0),
        (b'one', 1),
        (b'one\n', 1),
        (b'one\r\ntwo', 2),
        (b'a\x0cb\n', 1),
        (b'\xff\xfe' + 'a\nb'.encode('utf-16-le'), 2),
        (BROKEN, 2),
    ],
)
def test_lines_are_counted_at_line_feeds(data: bytes, lines: int) -> None:
    assert count_lines(data, detect_encoding(data)) == lines


def test_binary_data_has_no_lines() -> None:
    assert count_lines(PNG, None) is None


@pytest.mark.parametrize(
    ('name', 'data', 'kind'),
    [
        ('a.csv', b'x,y', 'text/csv'),
        ('Q3.xlsx', b'PK\x03\x04\0', 'application/vnd.openxmlformats-officedocument.spreadsheetml.sheet'),
        ('README.md', b'# Read me', 'text/markdown'),
        ('photo', PNG, 'image/png'),
        ('photo', b'RIFF\0\0\0\0WEBPVP8 ', 'image/webp'),
        ('data.bin2', b'\0\1', 'application/octet-stream'),
        ('NOTES', b'hello', 'text/plain'),
        ('logs.csv.gz', b'\x1f\x8b\x08', 'application/gzip'),
        ('wrong.png', b'not a picture', 'image/png'),
    ],
)
def test_media_type_is_guessed_by_name_then_by_content(name: str, data: bytes, kind: str) -> None:
    assert guess_media_type(name, data, detect_encoding(data)) == kind
