#!/usr/bin/env python3
"""Fit the weights of the ranking to pairs of child and parent.

Reads what `burnscope similar --quality PAIRS.json --features FILE` wrote, fits a conditional logit (the
probability of a candidate is the softmax of its weighted features) to the pairs that are not kept
aside, and prints the weights in the order of the features. Needs numpy and scipy.

    python scripts/fit-similar-weights.py features.json            # both passes
"""

import json
import sys

import numpy as np
from scipy.optimize import minimize

PENALTY = 0.5
SUPPORT = 12


def fit(examples, columns):
    data = []
    for example in examples:
        if example["parent"] in example["candidates"]:
            features = np.array(example["features"], dtype=float)[:, columns]
            data.append((features, example["candidates"].index(example["parent"])))
    scale = np.concatenate([features for features, _ in data]).std(0) + 1e-9
    data = [(features / scale, at) for features, at in data]

    def loss(weights):
        value, gradient = 0.0, np.zeros_like(weights)
        for features, at in data:
            utility = features @ weights
            share = np.exp(utility - utility.max())
            share /= share.sum()
            value -= np.log(share[at] + 1e-12)
            gradient += share @ features - features[at]
        return value + PENALTY * weights @ weights, gradient + 2 * PENALTY * weights

    found = minimize(loss, np.zeros(len(columns)), jac=True, method="L-BFGS-B", options={"maxiter": 500})
    return found.x / scale


def shares(examples, columns, weights):
    right = np.zeros(4)
    for example in examples:
        order = np.argsort(-(np.array(example["features"])[:, columns] @ weights), kind="stable")[:5]
        names = [example["candidates"][at] for at in order]
        clones = [example["clones"][at] for at in order]
        right += [names[:1] == [example["parent"]], example["parent"] in names, any(clones[:1]), any(clones)]
    return " ".join(f"{share:.3f}" for share in right / max(len(examples), 1))


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        examples = [example for example in json.load(file) if example["candidates"]]
    fitted_on = [example for example in examples if not example["kept_aside"]]
    aside = [example for example in examples if example["kept_aside"]]
    count = len(examples[0]["features"][0])
    for name, columns in (
        ("first pass", [at for at in range(count) if at != SUPPORT]),
        ("second pass", list(range(count))),
    ):
        weights = fit(fitted_on, columns)
        full = np.zeros(count)
        full[columns] = weights
        print(f"{name}: [{', '.join(f'{weight:.2f}' for weight in full)}]")
        print(f"  exact@1 @5 clone@1 @5: fitted on {shares(fitted_on, columns, weights)}, "
              f"kept aside {shares(aside, columns, weights)}")


if __name__ == "__main__":
    main()
