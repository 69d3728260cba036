"""The `skills new`, `skills list`, `skills show` and `skills validate` commands."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from inline_snapshot import snapshot
from typer.testing import CliRunner, Result

from pydantic_deep.cli._environment import Environment
from pydantic_deep.cli.commands._skills import skills_app
from pydantic_deep.cli.turn._runtime import Settings, skill_sources
from pydantic_deep.skills import discover_skills, validate_skill

Run = Callable[..., Result]


@pytest.fixture
def run(work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a skills command with an empty home directory."""
    monkeypatch.chdir(work)
    monkeypatch.setenv('COLUMNS', '200')
    environment = Environment(variables={'HOME': str(tmp_path / 'home')})

    def run(*args: str) -> Result:
        return CliRunner().invoke(skills_app, list(args), obj=environment)

    return run


def write(directory: Path, name: str, description: str = 'Use this skill when you test.', extra: str = '') -> Path:
    folder = directory / name
    folder.mkdir(parents=True)
    (folder / 'SKILL.md').write_text(f'---\nname: {name}\ndescription: {description}\n{extra}---\n# Do it\n')
    return folder


class TestNew:
    def test_new_writes_a_valid_skill_to_the_user_skills(self, run: Run, tmp_path: Path) -> None:
        """Without `--dir`, the skill is created in the directory that `chat`, `run` and `list` read."""
        folder = tmp_path / 'home/.agents/skills/my-skill'
        result = run('new', 'my-skill')
        assert (result.exit_code, result.stdout) == (
            0,
            f'{folder}/SKILL.md: fill it in, then: pydantic-deep skills validate {folder}\n',
        )
        assert [problem.code for problem in validate_skill(folder)] == ['description-placeholder']
        result = run('validate', str(folder))
        assert (result.exit_code, 'error: The description has a placeholder, `…`.' in result.stdout) == (1, True)
        text = (folder / 'SKILL.md').read_text()
        described = re.sub('^description: .*', 'description: Use this skill when…', text, flags=re.MULTILINE)
        (folder / 'SKILL.md').write_text(described)
        assert run('validate', str(folder)).stdout == f'{folder}: no problems found.\n'
        environment = Environment(variables={'HOME': str(tmp_path / 'home')})
        sources = skill_sources(environment, Settings(model='test', directory=str(tmp_path)))
        assert 'my-skill' in discover_skills(sources).skills
        assert 'my-skill  ' in run('list').stdout

    def test_new_writes_to_the_given_directory(self, run: Run, work: Path) -> None:
        assert run('new', 'my-skill', '--dir', 'mine').exit_code == 0
        assert (work / 'mine/my-skill/SKILL.md').read_text().startswith('---\nname: my-skill\n')

    @pytest.mark.parametrize('name', ['My Skill', '../x', 'a--b', '', 'x' * 65])
    def test_new_refuses_an_invalid_name(self, run: Run, work: Path, name: str) -> None:
        result = run('new', name)
        assert result.exit_code == 2
        assert "'NAME': the name of a skill" in result.stderr
        assert not (work / '.agents').exists()

    def test_new_does_not_overwrite_an_existing_skill(self, run: Run, tmp_path: Path) -> None:
        folder = write(tmp_path / 'home/.agents/skills', 'mine')
        before = (folder / 'SKILL.md').read_bytes()
        result = run('new', 'mine')
        assert (result.exit_code, result.stderr) == (
            1,
            f'{folder} already exists. Choose another name, or edit it.\n',
        )
        assert (folder / 'SKILL.md').read_bytes() == before

    def test_new_reports_an_unwritable_directory(self, run: Run) -> None:
        result = run('new', 'mine', '--dir', 'poem.txt')
        assert (result.exit_code, result.stderr) == (1, 'poem.txt/mine/SKILL.md cannot be written: Not a directory.\n')


class TestList:
    def test_list_contains_the_bundled_skills(self, run: Run) -> None:
        result = run('list')
        assert (result.exit_code, result.stderr) == (0, '')
        rows = [line.split()[:2] for line in result.stdout.splitlines()]
        assert [row for row in rows if row[1:] == ['bundled']] == [
            ['analysing-tables', 'bundled'],
            ['researching-questions', 'bundled'],
            ['reviewing-changes', 'bundled'],
            ['writing-skills', 'bundled'],
        ]

    def test_project_skills_are_untrusted_without_trust_option(self, run: Run, work: Path, tmp_path: Path) -> None:
        write(work / '.agents/skills', 'same')
        write(tmp_path / 'home/.agents/skills', 'same')
        listed = [(s['name'], s['scope'], s['is_trusted']) for s in json.loads(run('list', '--json').stdout)]
        assert listed[0] == ('same', 'user', True)
        assert listed[-1] == ('same', 'project', False)
        assert 'project, untrusted' in run('list').stdout
        listed = [(s['name'], s['scope'], s['is_trusted']) for s in json.loads(run('list', '--json', '--trust').stdout)]
        assert listed[0] == ('same', 'project', True)
        assert all(is_trusted for _, _, is_trusted in listed)

    def test_list_reads_the_given_directories(self, run: Run, work: Path) -> None:
        write(work / 'a', 'one', extra='allowed-tools: Read\ndisable-model-invocation: true\n')
        write(work / 'b', 'two')
        assert json.loads(run('list', '--dir', 'a', '--dir', 'b', '--json').stdout) == [
            {
                'name': 'one',
                'description': 'Use this skill when you test.',
                'scope': 'project',
                'path': str(work / 'a/one/SKILL.md'),
                'is_trusted': True,
                'is_hidden': True,
                'allowed_tools': ['Read'],
            },
            {
                'name': 'two',
                'description': 'Use this skill when you test.',
                'scope': 'project',
                'path': str(work / 'b/two/SKILL.md'),
                'is_trusted': True,
                'is_hidden': False,
                'allowed_tools': [],
            },
        ]
        assert run('list', '--dir', 'none').exit_code == 2

    def test_list_prints_diagnostics_to_stderr(self, run: Run, work: Path) -> None:
        write(work / 'a', 'good')
        (work / 'a/bad').mkdir()
        (work / 'a/bad/SKILL.md').write_text('nothing')
        result = run('list', '--dir', 'a', '--json')
        assert [skill['name'] for skill in json.loads(result.stdout)] == ['good']
        assert result.stderr.replace(str(work), 'WORK') == (
            'WORK/a/bad/SKILL.md:1: error: It has no frontmatter. Begin the file with a line `---`, name and '
            'description. [no-frontmatter]\n'
        )


class TestShow:
    def test_show_prints_the_text_for_the_agent(self, run: Run, work: Path) -> None:
        folder = write(work / '.agents/skills', 'mine')
        (folder / 'a.md').write_text('x')
        result = run('show', 'mine')
        assert (result.exit_code, result.stdout) == (
            0,
            snapshot("""\
<skill name="mine">
# Do it

[Files, read with load_skill('mine', file) and not to be run here: a.md]
</skill>
"""),
        )

    def test_show_of_an_unknown_skill_fails(self, run: Run) -> None:
        result = run('show', 'writing-skill')
        assert (result.exit_code, result.stderr) == (1, "No skill named 'writing-skill'. Similar: writing-skills.\n")

    def test_show_of_a_binary_file_fails(self, run: Run, work: Path) -> None:
        folder = write(work / 'a', 'mine')
        with (folder / 'SKILL.md').open('ab') as file:
            file.write(bytes(Random(0).choices(range(1, 256), k=5_000)))
        result = run('show', 'mine', '--dir', 'a')
        assert (result.exit_code, result.stderr) == (
            1,
            'mine cannot be shown: SKILL.md: It is not text. Save it as UTF-8.\n',
        )


class TestValidate:
    def test_validate_exits_with_1_on_errors(self, run: Run, work: Path) -> None:
        write(work / 'a', 'Bad', 'Does things.')
        result = run('validate', 'a/Bad')
        assert (result.exit_code, result.stdout) == (
            1,
            snapshot("""\
a/Bad/SKILL.md:2: error: The name 'Bad' has uppercase letters. Write it like `my-skill`. [name-form]
a/Bad/SKILL.md: warning: The description does not say when to use the skill. Begin it with `Use this skill when…`. [description-when]
"""),
        )

    def test_validate_exits_with_0_on_warnings(self, run: Run, work: Path) -> None:
        write(work / 'a', 'good', 'Does things.')
        result = run('validate', 'a/good', '--json')
        assert (result.exit_code, json.loads(result.stdout)) == (
            0,
            snapshot(
                [
                    {
                        'severity': 'warning',
                        'path': 'a/good/SKILL.md',
                        'line': None,
                        'code': 'description-when',
                        'message': 'The description does not say when to use the skill. Begin it with `Use this skill when…`.',
                    }
                ]
            ),
        )

    def test_validate_without_problems_prints_a_message(self, run: Run, work: Path) -> None:
        write(work / 'a', 'good')
        assert run('validate', 'a/good').stdout == 'a/good: no problems found.\n'

    def test_validate_accepts_several_skills(self, run: Run, work: Path) -> None:
        write(work / 'a', 'good')
        result = run('validate', 'a/good', 'a/none')
        assert result.exit_code == 1
        assert result.stdout.startswith('a/good: no problems found.\na/none/SKILL.md: error: ')
        documents = json.loads(run('validate', 'a/good', 'a/none', '--json').stdout)
        assert [document['path'] for document in documents] == ['a/none/SKILL.md']
