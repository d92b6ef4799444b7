"""Scripts into commands: as sh reads them, each word at its place, and nothing carried out."""

import shlex
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numadoctor.lint import arithmetic
from numadoctor.lint.nodes import Refused, Word
from numadoctor.lint.shell import Command, expanded, parse_shell, parse_word


def texts(script: str) -> list[list[str]]:
    return [[word.text for word in command.words] for command in parse_shell(script, "f")]


@pytest.mark.parametrize(
    ("script", "commands"),
    [
        ("a b c", [["a", "b", "c"]]),
        ("a 'b c' \"d e\" f\\ g", [["a", "b c", "d e", "f g"]]),
        ("a --x='1 2'\"3\"", [["a", "--x=1 23"]]),
        ("a b \\\n  c", [["a", "b", "c"]]),
        ("a # b\nc", [["a"], ["c"]]),
        ("a#b", [["a#b"]]),
        ("a; b && c || d | e & f", [["a"], ["b"], ["c"], ["d"], ["e"], ["f"]]),
        ("if a; then b; else c; fi", [["a"], ["b"], ["c"], ["fi"]]),
        ("a > log 2>&1 < in b", [["a", "b"]]),
        ("a $(b; c 'd)') `e f` ${g:-h i}", [["a", "$(b; c 'd)')", "`e f`", "${g:-h i}"]]),
        ("cat <<E\nnumactl it's\nE\nnext", [["cat"], ["next"]]),
        ("cat <<-'E'\n\tx\n\tE\nnext", [["cat"], ["next"]]),
        ("((n = 1 << 2)); a\nb", [["a"], ["b"]]),
        ("for ((i = 0; i < 8; i++)); do a $i; done", [["for"], ["a", "$i"], ["done"]]),
        ("a <<< b\nc", [["a"], ["c"]]),
        ("a\n\n\n#x\n\nb", [["a"], ["b"]]),
        ("sudo -E numactl -H", [["numactl", "-H"]]),
        ("X=1 exec env Y=2 a", [["a"]]),
        ('a "b\\n\\"c\\$d"', [["a", 'b\\n"c$d']]),
        ("", []),
        ("()", []),
        ("'' a", [["", "a"]]),
    ],
)
def test_commands(script: str, commands: list[list[str]]) -> None:
    assert texts(script) == commands


@pytest.mark.parametrize("script", ["a 'b", 'a "b', "a $(b", "a ${b", "a `b", 'a "$(b"'])
def test_what_does_not_end_is_refused_with_its_place(script: str) -> None:
    with pytest.raises(Refused) as told:
        list(parse_shell(script, "f"))
    assert (told.value.line, told.value.column) in {(1, 3), (1, 4), (1, 7)}


def test_a_script_of_any_length_is_bounded() -> None:
    with pytest.raises(Refused, match="20,000 commands"):
        list(parse_shell("a\n" * 20_001, "f"))
    with pytest.raises(Refused, match="200,000 words"):
        list(parse_shell("a " * 200_001, "f"))


def test_variables_with_one_plain_value_are_put_in() -> None:
    script = "A=0-7\nB=$X\nC=1\nC=2\nx $A ${A} $B $C $D '$A'"
    (command,) = parse_shell(script, "f")
    assert [word.text for word in command.words[1:6]] == ["0-7", "0-7", "$B", "$C", "$D"]


def test_environment_of_a_command() -> None:
    commands = list(parse_shell("export A=1\nB=2 x\ny", "f"))
    assert {name: word.text for name, word in commands[0].environment.items()} == {
        "A": "1",
        "B": "2",
    }
    assert {name: word.text for name, word in commands[1].environment.items()} == {"A": "1"}


def test_the_background() -> None:
    script = "a &\nb && c &\nd"
    assert [command.background for command in parse_shell(script, "f")] == [
        True,
        False,
        True,
        False,
    ]


def test_what_a_shell_is_given_is_looked_into() -> None:
    (command,) = parse_shell("docker exec x bash -lc 'A=1 numactl -m 0 y; z'", "f")
    inner = expanded(command)
    assert [[word.text for word in one.words] for one in inner] == [
        ["numactl", "-m", "0", "y"],
        ["z"],
    ]
    assert inner[0].words[0].column == 29


def places(commands: list[Command]) -> list[tuple[str, int, int]]:
    return [(word.text, word.line, word.column) for one in commands for word in one.words]


def test_places_over_lines_and_blocks() -> None:
    assert places(list(parse_shell("a \\\n  bb cc\n\n d", "f"))) == [
        ("a", 1, 1), ("bb", 2, 3), ("cc", 2, 6), ("d", 4, 2),
    ]  # fmt: skip
    # A block of YAML begins at a column, its other lines as far inside.
    block = Word("f", 10, 5, "a \\\n  b\nc\n", "|")
    assert places(parse_word(block)) == [("a", 10, 5), ("b", 11, 7), ("c", 12, 5)]
    assert places(parse_word(Word("f", 3, 4, "x y", '"'))) == [("x", 3, 5), ("y", 3, 7)]
    assert places(parse_word(Word("f", 3, 4, "x y", ">"))) == [("x", 3, 4), ("y", 3, 4)]


PLAIN = st.text(st.sampled_from("abz019-=/.:,@%+é"), min_size=1, max_size=6)


@given(
    st.lists(PLAIN, min_size=1, max_size=6),
    st.lists(st.sampled_from([" ", "  ", " \\\n "]), min_size=6),
)
def test_every_word_stands_at_its_place(words: list[str], gaps: list[str]) -> None:
    script = "x" + "".join(gap + word for gap, word in zip(gaps, words, strict=False))
    lines = script.split("\n")
    for command in parse_shell(script, "f"):
        for word in command.words:
            assert lines[word.line - 1][word.column - 1 :].startswith(word.text)


@given(
    st.lists(
        st.text(st.characters(exclude_characters="\0\r", exclude_categories=["Cs"]), max_size=8)
    )
)
def test_quoted_words_are_read_as_they_were(words: list[str]) -> None:
    script = shlex.join(["x", *words])
    assert [[w.text for w in c.words] for c in parse_shell(script, "f")] == [["x", *words]]


@given(st.text(st.sampled_from("ab '\"\\\n$(){}`|;&<>#=-E\t"), max_size=60))
def test_any_text_gives_commands_or_is_refused(script: str) -> None:
    try:
        commands = list(parse_shell(script, "f"))
    except Refused:
        return
    lines = script.split("\n")
    for command in commands:
        for word in command.words:
            assert 1 <= word.line <= len(lines)
            assert 1 <= word.column <= len(lines[word.line - 1]) + 1


def commands(text: str) -> list[list[str]]:
    return [[word.text for word in one.words] for one in parse_shell(text, "f")]


def test_what_docker_run_starts_stays_its_own() -> None:
    (command,) = parse_shell("docker run img bash -c 'numactl -m 0 y'", "f")
    assert expanded(command) == [command]


def test_arrays() -> None:
    text = 'A=(-x \'y z\' # comment\n  $B)\nB=1\nrun "${A[@]}" end\nrun ${A[*]}\nrun "${C[@]}"'
    assert commands(text) == [
        ["run", "-x", "y z", "$B", "end"], ["run", "-x", "y z", "$B"], ["run", "${C[@]}"],
    ]  # fmt: skip
    assert commands('A=(a)\nif x; then A+=(b); fi\nrun "${A[@]}"')[-1] == [
        "run", "a", "b", "${A[@]}",
    ]  # fmt: skip
    assert commands("declare -a A=(a b)\nrun ${A[@]}") == [["run", "a", "b"]]
    with pytest.raises(Refused, match="an array that does not end"):
        commands("A=(a\nrun")


@pytest.mark.parametrize(
    "text",
    [
        "A="
        + "x" * 1000
        + "".join(f"\n{c}=${b}${b}" for b, c in pairwise("ABCDEFGHIJKLMNOPQRSTUVW")),
        "A=(" + "x " * 2000 + ")\nrun " + "${A[@]} " * 2000,
        "A=" + "x" * 100_000 + '\nrun "' + "$A" * 100_000 + '"',
    ],
)
def test_what_variables_multiply_is_never_built(text: str) -> None:
    with pytest.raises(Refused, match="multiply"):
        commands(text)


def test_a_variable_without_quotes_is_divided() -> None:
    assert commands("O='-a b'\nrun $O \"$O\" x$O") == [["run", "-a", "b", "-a b", "x-a b"]]
    assert commands("O=\nrun $O x") == [["run", "x"]]


@pytest.mark.parametrize(
    "text",
    ["for C in a b; do", "for C in *; do", "for C in 0-3; do x; done", "while read -r x C; do",
     "unset C", "mapfile -t C", "C+=,9", "C=1", "local C=1", "getopts a C"],
)  # fmt: skip
def test_what_may_hold_another_value_is_not_known(text: str) -> None:
    assert commands(f"C=0-7\n{text}\nrun $C")[-1] == ["run", "$C"]


def test_loops_over_numbers() -> None:
    text = 'for n in 0 1; do\n  numactl -N $n -m "$n" x --port $((8000 + n)) &\n  y\ndone\nz $n'
    assert commands(text) == [
        ["numactl", "-N", "0", "-m", "0", "x", "--port", "8000"],
        ["numactl", "-N", "1", "-m", "1", "x", "--port", "8001"],
        ["y"], ["done"], ["z", "$n"],
    ]  # fmt: skip
    nested = "for a in {0..1}; do for b in $(seq 2); do run $a $b; done; run $a; done"
    assert [one for one in commands(nested) if one[0] == "run"] == [
        ["run", "0", "1"], ["run", "0", "2"], ["run", "1", "1"], ["run", "1", "2"],
        ["run", "0"], ["run", "1"],
    ]  # fmt: skip
    assigned = "for i in 0 1; do C=$((i*32))-$((i*32+31)); run $C; done"
    assert ["run", "$C"] in commands(assigned)
    many = "for i in {0..31}; do for j in {0..31}; do run $i $j; done; done"
    assert ["run", "$i", "$j"] in commands(many)
    long = f"for i in {{0..31}}; do run $i {'x ' * 1000}; done"
    assert len([one for one in commands(long) if one[0] == "run"]) == 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("$((1+2*3))", "7"), ("$(( (1+2) * 3 ))", "9"), ("$((n/2))", "3"), ("$(($n%4))", "3"),
        ("$((n))-$((n+7))", "7-14"), ("$((m+1))", "$((m+1))"), ("$((1/0))", "$((1/0))"),
        ("$((1-2))", "$((1-2))"), ("$((010))", "$((010))"), ("$((1<<40))", "$((1<<40))"),
        ("$((n**n))", "$((n**n))"), ("$((x=1))", "$((x=1))"), ("$(())", "$(())"),
    ],
)  # fmt: skip
def test_arithmetic(text: str, expected: str) -> None:
    assert arithmetic.expanded(text, {"n": "7"}.get) == expected


@given(st.text(st.sampled_from("$(){}+-*/%0123n \n."), max_size=60))
def test_any_arithmetic(text: str) -> None:
    arithmetic.expanded(text, {"n": "7"}.get)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("echo $'it\\'s \\n' b", ["echo", "it's \n", "b"]),
        ("x=$(case $1 in a) echo 1;; (b) echo 2;; esac); run", ["run"]),
        ("x=$(echo \")\" ')' \\) ); run", ["run"]),
        ("x=$(a # it's )\n b); run", ["run"]),
        ("x=$(cat <<E\nit's )\nE\n); run", ["run"]),
        ("x=$((1<<2)) ; run $((16#ff))", ["run", "$((16#ff))"]),
        ('run "$(echo "$(echo ")")")"', ["run", '$(echo "$(echo ")")")']),
        ("x=`basename \\`pwd\\``; run 'a'", ["run", "a"]),
        ("run ${x#*\\}}", ["run", "${x#*\\}}"]),
        ('A=([0]=a [1]=b)\nrun "${!A[@]}"', ["run", "${!A[@]}"]),
    ],
)
def test_quotes_and_substitutions_of_bash(text: str, expected: list[str]) -> None:
    assert commands(text)[-1] == expected


def test_substitutions_of_any_depth() -> None:
    with pytest.raises(Refused, match="levels deep"):
        commands('run "' + '$("' * 5000)
    assert commands("run " + "$(" * 40 + ")" * 40)[-1][0] == "run"
