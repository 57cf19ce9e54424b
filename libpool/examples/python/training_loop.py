"""A training loop whose weights are in the pool: while one layer is computed, the next one is on its way into DRAM.

    training_loop.py [STEPS]

DRAM has room for three layers: the one that is computed, the one that comes, and the one before, which goes back
when it was trained. Says how much of the copying was hidden behind the computing, which takes a processor that has
nothing else to do, and fails where the trained weights are not those of a plain loop, which has all of them in DRAM.
"""

import asyncio
import sys
import time

import cxlpool
import numpy

LAYERS, WIDTH, BATCH, RATE = 6, 1024, 8, numpy.float32(0.01)
LAYER_BYTES = 4 * WIDTH * WIDTH
VISITS = [*range(LAYERS), *reversed(range(LAYERS))]  # The layers of a step: forward, and back.


def make():
    """The layers before the training, a question, and the answer that is wanted."""
    chance = numpy.random.default_rng(1)
    scale = numpy.float32((2 / WIDTH) ** 0.5)
    layers = [scale * chance.standard_normal((WIDTH, WIDTH), numpy.float32) for _ in range(LAYERS)]
    return layers, *chance.random((2, BATCH, WIDTH), numpy.float32)


def forward(weights, values):
    values.append(numpy.maximum(values[-1] @ weights, 0))


def backward(weights, values, slope):
    """Trains the layer where it is. Returns the slope of the loss by what went into it."""
    slope = slope * (values.pop() > 0)
    before = slope @ weights.T
    weights -= RATE * (values[-1].T @ slope)
    return before


def train_in_dram(layers, question, answer, steps):
    for _ in range(steps):
        values = [question]
        for layer in range(LAYERS):
            forward(layers[layer], values)
        slope = (values[-1] - answer) / BATCH
        for layer in reversed(range(LAYERS)):
            slope = backward(layers[layer], values, slope)


class Copies:
    """Copies of layers. ahead: they go on while the caller computes; else each has ended when it was begun."""

    def __init__(self, memory, ahead):
        self.memory, self.ahead, self.waited = memory, ahead, 0.0

    async def begin(self, copy, layer, buffer):
        task = asyncio.create_task(copy(self.memory, layer * LAYER_BYTES, buffer))
        # A copy is under way as soon as its task has run once: a thread of the library's carries it out.
        await (asyncio.sleep(0) if self.ahead else self.end(task))
        return task

    async def end(self, task):
        begin = time.perf_counter()
        await task
        self.waited += time.perf_counter() - begin


async def train_in_pool(copies, question, answer, steps):
    room = [numpy.empty((WIDTH, WIDTH), numpy.float32) for _ in range(3)]
    for _ in range(steps):
        values, puts = [question], {}
        get = await copies.begin(cxlpool.get_async, VISITS[0], room[0])
        for visit, layer in enumerate(VISITS):
            await copies.end(get)
            if visit + 1 < len(VISITS):
                if visit - 2 in puts:  # The layer that is in the room of the next one.
                    await copies.end(puts.pop(visit - 2))
                get = await copies.begin(cxlpool.get_async, VISITS[visit + 1], room[(visit + 1) % 3])
            weights = room[visit % 3]
            if visit < LAYERS:
                forward(weights, values)
                continue
            if visit == LAYERS:
                slope = (values[-1] - answer) / BATCH
            slope = backward(weights, values, slope)
            puts[visit] = await copies.begin(cxlpool.put_async, layer, weights)
        for put in puts.values():  # The next step begins with the layers that come last here.
            await copies.end(put)


async def main(steps=5):
    plain, question, answer = make()
    untrained = [layer.copy() for layer in plain]
    train_in_dram(plain, question, answer, int(steps))
    waited = {}
    with cxlpool.allocate('256MiB').map() as memory:
        for way, ahead in (('one after the other', False), ('ahead', True)):
            for layer, weights in enumerate(untrained):
                await cxlpool.put_async(memory, layer * LAYER_BYTES, weights)
            copies, begin = Copies(memory, ahead), time.perf_counter()
            await train_in_pool(copies, question, answer, int(steps))
            waited[ahead] = copies.waited
            print(f'{way}: {time.perf_counter() - begin:.3f} s, {copies.waited:.3f} s of that waiting for copies')
            trained = numpy.empty((WIDTH, WIDTH), numpy.float32)
            for layer, weights in enumerate(plain):
                await cxlpool.get_async(memory, layer * LAYER_BYTES, trained)
                if not numpy.array_equal(trained, weights):
                    sys.exit(f'layer {layer} is not as the plain loop trained it')
    print(f'{100 * (1 - waited[True] / waited[False]):.0f} % of the copying was hidden, and the weights are those of the plain loop')


if __name__ == '__main__':
    asyncio.run(main(*sys.argv[1:]))
