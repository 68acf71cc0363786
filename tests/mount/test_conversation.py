"""Talking to a model with echo and cat, from every shell and with every cat."""

import shutil

import pytest

from tests.mount.world import World

UUTILS = "/usr/lib/cargo/bin/coreutils/cat"
CATS = {"gnu": "cat", "busybox": "busybox cat", "uutils": UUTILS}
SHELLS = ["dash", "bash", "zsh", "busybox"]


@pytest.fixture(params=SHELLS)
def shell(request: pytest.FixtureRequest) -> str:
    name = str(request.param)
    if not shutil.which(name):
        pytest.skip(f"{name} is not installed")
    return name


@pytest.fixture(params=CATS)
def cat(request: pytest.FixtureRequest) -> str:
    command = CATS[str(request.param)]
    if not shutil.which(command.split()[0]):
        pytest.skip(f"{command} is not installed")
    return command


@pytest.fixture
def failure(world: World, cat: str) -> int:
    """The exit status of this cat after a read error: 1, but 0 for uutils before 0.0.28, which ignores them all."""
    status = world.sh(f"{cat} /proc/self/mem").returncode  # proc(5): EIO at address 0
    assert status == (0 if cat == UUTILS and not status else 1)
    return status


def test_reply_follows_prompt(world: World, agent: str, shell: str, cat: str) -> None:
    """`echo hi > prompt; cat reply` prints the whole answer, whichever shell and cat."""
    for number in range(5):
        said = world.out(f"echo hi {number} > {agent}/prompt; {cat} {agent}/reply", shell=shell)
        assert said == f"You said: hi {number}\n"


def test_reply_waits_for_a_slow_answer(world: World, agent: str, cat: str) -> None:
    """A reply opened before its first word gives all of it, also to programs that read through the page cache."""
    script = f"printf '@fake chunks 5 delay 0.05\\n' > {agent}/prompt; {cat} {agent}/reply"
    assert world.out(script) == "".join(f"chunk {n}\n" for n in range(5))


def test_reply_streams(world: World, agent: str, cat: str) -> None:
    """The first words arrive while the answer is still being made."""
    gate = world.home / "gate"
    script = (
        f"rm -f {gate}; printf '@fake chunks 2000 delay 0.005\\n' > {agent}/prompt; {cat} {agent}/reply | head -n 2;"
        f" {cat} {agent}/state; echo stop > {agent}/ctl"
    )
    assert world.out(script) == "chunk 0\nchunk 1\nthinking\n"


def test_failed_turn_fails_cat(world: World, agent: str, cat: str, failure: int) -> None:
    """A turn that failed makes cat exit 1 after the text there was, and `error` says why."""
    done = world.sh(f"printf '@fake status 500\\n' > {agent}/prompt; {cat} {agent}/reply")
    assert done.returncode == failure
    assert "told to answer 500" in world.out(f"cat {agent}/error")
    again = world.sh(f"{cat} {agent}/reply")
    assert again.returncode == failure
    assert world.out(f"echo better > {agent}/prompt; {cat} {agent}/reply; cat {agent}/error") == "You said: better\n"


def test_cut_answer_keeps_its_text_and_fails(world: World, agent: str, cat: str, failure: int) -> None:
    """An answer that breaks off gives what came and then an error."""
    done = world.sh(f"printf '@fake say half\\n@fake cut\\n' > {agent}/prompt; {cat} {agent}/reply")
    assert done.stdout == b"half\n"
    assert done.returncode == failure


def test_own_reply_on_the_same_open_file(world: World, agent: str, shell: str) -> None:
    """`exec 3<>prompt` gives the prompt's own reply, beside other writers, again and again."""
    script = f"""
    for n in 1 2 3 4 5 6 7 8; do
        (exec 3<>{agent}/prompt; echo "number $n" >&3; cat <&3; echo "again $n" >&3; cat <&3) > {world.home}/own.$n &
    done
    wait
    cat {world.home}/own.1 {world.home}/own.8
    """
    expected = "".join(f"You said: number {n}\nYou said: again {n}\n" for n in (1, 8))
    assert world.out(script, shell=shell) == expected


def test_several_writers_to_one_open_file_make_one_prompt(world: World, agent: str, shell: str) -> None:
    """`{ cat a; cat b; } > prompt` is one prompt, though each cat flushes."""
    script = f"""
    cd {world.home}; printf 'first\\n' > a; printf 'second\\n' > b
    {{ echo intro; cat a; cat b; }} > {agent}/prompt; cat {agent}/reply
    """
    assert world.out(script, shell=shell) == "You said: intro\nfirst\nsecond\n"
    assert "turn_requests=1\n" in world.out(f"cat {agent}/usage")


def test_answer_is_the_last_message_alone(world: World, agent: str, cat: str) -> None:
    """`answer` waits for the end of the turn and gives the message."""
    script = f"printf '@fake chunks 3 delay 0.02\\n' > {agent}/prompt; {cat} {agent}/answer | tail -n 1"
    assert world.out(script) == "chunk 2\n"


def test_queue_runs_in_order(world: World, agent: str) -> None:
    """Prompts written while a turn runs wait their turn and can be listed and dropped."""
    gate = world.home / f"gate-{agent.replace('/', '_')}"
    script = f"""
    printf '@fake until {gate}\\n@fake say one\\n' > {agent}/prompt
    echo two > {agent}/prompt; echo three > {agent}/prompt; echo four > {agent}/prompt
    cat {agent}/queue
    echo 'drop 3' > {agent}/queue
    touch {gate}; cat {agent}/reply; grep -c user: {agent}/chat; grep -n 'said' {agent}/chat
    """
    said = world.out(script)
    assert said == (
        "2\ttwo\n3\tthree\n4\tfour\nYou said: four\n3\n5:assistant: You said: two\n7:assistant: You said: four\n"
    )


def test_stop_keeps_text_and_holds_the_queue(world: World, agent: str) -> None:
    """`stop` ends the reply as cancelled, keeps its text, and the queue waits for `resume`."""
    script = f"""
    printf '@fake chunks 1000 delay 0.02\\n' > {agent}/prompt
    echo waiting > {agent}/prompt
    until grep -q 'chunk 1' {agent}/chat; do :; done
    cat {agent}/reply & held=$!
    echo stop > {agent}/ctl
    wait $held; echo "held $?"
    cat {agent}/queue
    echo resume > {agent}/ctl
    cat {agent}/reply
    """
    assert world.out(script) == "held 1\n2\twaiting\nYou said: waiting\n"
    assert "chunk 1" in world.out(f"cat {agent}/chat")


def test_prompt_commands(world: World, agent: str) -> None:
    """A line with a slash is a command; its answer is the reply, and an unknown one is refused with a hint."""
    assert world.out(f"echo /temperature 0.5 > {agent}/prompt; cat {agent}/reply; grep temp {agent}/ctl") == (
        "temperature 0.5\n"
    )
    done = world.sh(f"echo /temprature 1 > {agent}/prompt; cat {agent}/reply")
    assert done.returncode == 1
    assert b"Invalid argument" in done.stderr
    error = world.out(f"cat {agent}/error")
    assert "did you mean 'temperature'" in error
    assert "leading space" in error
    assert world.out(f"echo ' /temprature 1' > {agent}/prompt; cat {agent}/reply") == "You said:  /temprature 1\n"
    assert world.out(f"echo '/etc/passwd is what?' > {agent}/prompt; cat {agent}/reply") == (
        "You said: /etc/passwd is what?\n"
    )


@pytest.mark.parametrize("line", ["kill", "cwd /"])
def test_piped_text_turns_no_key(world: World, agent: str, line: str) -> None:
    """What changes rights or ends things works only through ctl."""
    assert world.sh(f"echo '/{line}' > {agent}/prompt; cat {agent}/reply").returncode == 1
    assert "only through ctl" in world.out(f"cat {agent}/error")


def test_generate_keeps_nothing(world: World) -> None:
    """A one-shot answer is read on the same open file, and no session shows it."""
    before = world.out("cat $m/session/idx")
    assert world.out("exec 3<>$m/generate; echo hello >&3; cat <&3") == "You said: hello\n"
    assert world.out("exec 3<>$m/generate; printf 'model=fake-2\\n\\nhello' >&3; cat <&3") == "You said: hello\n"
    assert world.out("cat $m/session/idx") == before
    bad = world.sh("exec 3<>$m/generate; printf 'modle=x\\n\\nhello' >&3; cat <&3")
    assert bad.returncode == 1


def test_new_gives_the_name(world: World) -> None:
    """`new` answers with the name on the same open file, and reads as a template before."""
    script = "exec 3<>$m/session/new; echo \"cwd=$PWD title='two words'\" >&3; read name <&3; echo $name"
    name = world.out(script).strip()
    assert world.out(f"cat $m/session/{name}/cwd $m/session/{name}/title") == f"{world.home}\ntwo words\n"
    assert "# cwd=" in world.out("cat $m/session/new")
    made = world.out(f"exec 3<>$m/session/{name}/agent/new; echo name=helper >&3; cat <&3")
    assert made == "helper\n"
    assert world.out(f"echo hi > $m/session/{name}/agent/helper/prompt; cat $m/session/{name}/agent/helper/reply") == (
        "You said: hi\n"
    )
    world.out(f"rm -r $m/session/{name}; ! test -e $m/session/{name}")


def test_statewait(world: World, agent: str) -> None:
    """`statewait` returns at the next change, at once for a past one, and `idle` waits for the end of the turn."""
    gate = world.home / f"wait-{agent.replace('/', '_')}"
    script = f"""
    cat {agent}/statewait > {world.home}/first & waiter=$!
    until_blocked 1
    printf '@fake until {gate}\\n@fake say x\\n' > {agent}/prompt
    wait $waiter; cat {world.home}/first
    exec 3<>{agent}/statewait; echo since 0 >&3; cat <&3
    exec 4<>{agent}/statewait; echo idle >&4; (cat <&4 > {world.home}/second) & waiter=$!
    touch {gate}; wait $waiter; cut -d' ' -f1 {world.home}/second
    """
    first, since, idle = world.out(script).splitlines()
    assert first.split()[0] in ("receiving", "thinking")
    assert since.split()[0] == "thinking"
    assert idle == "idle"


def test_events_can_be_resumed(world: World, agent: str) -> None:
    """`events` tells what happened after a number, and waits for more."""
    script = f"""
    exec 3<>$m/events; echo since 0 >&3
    echo hi > {agent}/prompt; cat {agent}/reply > /dev/null
    timeout 5 grep -m1 turn_finished <&3
    """
    assert '"type": "turn_finished"' in world.out(script)
