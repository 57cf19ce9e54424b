"""Finds what keeps pool memory mapped, by the line: with tracemalloc, as for any other memory."""

import tracemalloc

import cxlpool

models = []


def load(name):
    weights = cxlpool.open(name, 'ro').map()  # Mapped once more each time, and never unmapped:
    models.append(cxlpool.safetensors(weights))  # the list keeps what was loaded before.
    return models[-1]


tracemalloc.start()
for _ in range(3):
    model = load('model')

snapshot = tracemalloc.take_snapshot()
for line in snapshot.statistics('lineno')[:3]:
    print(line)
