"""The corpus of the studies of translation, for tests: number words in place of sentences."""

import atexit
import os
import shutil
import tempfile
from pathlib import Path

from loopscale.corpora.files import part_files
from loopscale.corpora.number_words import PAIRS_OF_PARTS, number_corpus
from loopscale.tasks.sentence_pairs import CORPORA_FOLDER


def provide_corpus() -> None:
    """Write the corpus `german-english` into a folder of this process, and name the folder in the environment."""
    folder = Path(tempfile.mkdtemp(prefix="loopscale-corpora-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    corpus = number_corpus()
    parts = {part: getattr(corpus, part) for part in PAIRS_OF_PARTS}
    (folder / "german-english").mkdir()
    for name, content in part_files(parts, corpus.source, corpus.target).items():
        (folder / "german-english" / name).write_bytes(content)
    os.environ[CORPORA_FOLDER] = str(folder)
