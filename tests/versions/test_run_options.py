"""The options of a run are loaded as they were stored."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from pydantic_ai.settings import ModelSettings
from pydantic_ai.usage import UsageLimits

from pydantic_deep.store._samples import sample_run
from pydantic_deep.versions._run_options import RunOptions, json_settings, load_options

TEXTS = st.none() | st.text(st.characters(codec=None))
STATES = st.none() | st.dictionaries(st.text(st.characters(codec=None)), st.text())


@given(
    st.builds(
        RunOptions,
        model=TEXTS,
        model_settings=st.dictionaries(st.text(), st.integers() | st.text() | st.lists(st.booleans())),
        usage_limits=st.none() | st.builds(UsageLimits, request_limit=st.none() | st.integers(1, 100)),
        branch=TEXTS,
        head=TEXTS,
        resumes=TEXTS,
        after=st.lists(st.text()),
        session_id=TEXTS,
        protected=STATES,
        protected_in_view=STATES,
    )
)
def test_options_round_trip(options: RunOptions):
    """File names may contain lone surrogates: bytes that are not UTF-8."""
    assert load_options(sample_run('c')._replace(options=options.dump())) == options


def test_unknown_options_of_other_releases_are_ignored():
    run = sample_run('c')._replace(options='{"model": "test:model", "colour": "red"}')

    assert load_options(run) == RunOptions(model='test:model')


def test_settings_that_json_cannot_represent_are_omitted():
    settings = ModelSettings(seed=7, extra_body={'a': object()})

    assert json_settings(settings) == {'seed': 7}
