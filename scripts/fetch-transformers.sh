#!/bin/sh
# Fetches the part of a transformers checkout (Apache-2.0) that the scanners' tests read, at the commit
# that their reference data was made from, into tests/data/downloads/transformers (about 60 MB).
# Without it those tests say that they are skipped. TRANSFORMERS_REPOSITORY names another clone of it.
set -eu

cd "$(dirname "$0")/.."
commit=c49429ed1f
repository=${TRANSFORMERS_REPOSITORY:-https://github.com/8b-is/transformers}
folder=tests/data/downloads/transformers
parts="src/transformers/models src/transformers/testing_utils.py docs/source/en/model_doc tests utils"

if [ -d "$folder" ]; then
    echo "$folder is there already"
    exit 0
fi

mkdir -p tests/data/downloads
work=$(mktemp -d tests/data/downloads/fetch.XXXXXX)
trap 'rm -rf "$work"' EXIT
git clone --quiet --bare --filter=blob:none "$repository" "$work/git"
mkdir "$work/tree"
# shellcheck disable=SC2086
git --git-dir="$work/git" archive "$commit" $parts | tar -x -C "$work/tree"
mv "$work/tree" "$folder"
echo "$folder"
