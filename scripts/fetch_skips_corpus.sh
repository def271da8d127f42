#!/bin/sh
# Fetches the transformers tree that the measurements in docs/skips.md were made on.
#
#     scripts/fetch_skips_corpus.sh FOLDER
#
# The tree is commit c49429ed1f (2026-08-16) of the public repository 8b-is/transformers. About 80 MB are
# downloaded; nothing of it is needed to build or test.
set -eu
folder=${1:?usage: fetch_skips_corpus.sh FOLDER}
mkdir -p "$folder"
cd "$folder"
git init -q
git remote get-url origin >/dev/null 2>&1 || git remote add origin https://github.com/8b-is/transformers
git fetch -q --filter=blob:none origin
git sparse-checkout set --no-cone /tests/ /utils/scan_skipped_tests.py /src/transformers/testing_utils.py
git checkout -q c49429ed1f
