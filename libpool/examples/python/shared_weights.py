"""Models whose weights are in the pool once, for every host and process that uses them.

    shared_weights.py write NAME [SEED]    on one host: makes a model in a Region of that name
    cxlpool region attach NAME --host HOST --access ro --wait    for each other host
    shared_weights.py serve NAME...        on any of them: answers by these models in turn

Who serves reads the weights where they are. Nothing is loaded: neither at the start nor at a change of the model.
"""

import sys
import time

import cxlpool
import numpy

LAYERS, WIDTH = 8, 1536


def make(seed):
    """What stands for a trained model: its layers by name."""
    chance = numpy.random.default_rng(int(seed))
    scale = numpy.float32((2 / WIDTH) ** 0.5)
    return {f'layers.{i}.weight': scale * chance.standard_normal((WIDTH, WIDTH), numpy.float32) for i in range(LAYERS)}


def write(name, seed=1):
    """The weights are stored once, and their Region stays when this process has ended."""
    region = cxlpool.allocate('256MiB', name, sharing='single-writer', persistent=True)
    with region.map() as memory:
        size = cxlpool.save_safetensors(memory, make(seed), {'seed': str(seed)})
    print(f'{name}: {size} bytes written')


def open_model(name):
    """The layers, each an array over the Region's memory. An array keeps the map, and the map keeps the Region in use."""
    tensors = cxlpool.safetensors(cxlpool.open(name, 'ro').map())
    return [numpy.frombuffer(t.buffer, numpy.float32).reshape(t.shape) for t in tensors.values()]


def answer(model, question):
    for weight in model:
        question = numpy.maximum(question @ weight, 0)
    return question.mean()


def own_memory():
    """In MiB: what only this process has. The pool's memory is not in it."""
    with open('/proc/self/status') as status:
        return sum(int(line.split()[1]) for line in status if line.startswith('RssAnon')) // 1024


def serve(*names):
    models = {name: open_model(name) for name in names}
    weights = sum(layer.nbytes for model in models.values() for layer in model) >> 20
    question = numpy.ones((1, WIDTH), numpy.float32)
    for name in names * 3:
        begin = time.perf_counter()
        said = answer(models[name], question)
        print(f'{name}: {said:.6f} in {1000 * (time.perf_counter() - begin):.1f} ms')
    print(f'{weights} MiB of weights, {own_memory()} MiB of memory of my own')


if __name__ == '__main__':
    {'write': write, 'serve': serve}[sys.argv[1]](*sys.argv[2:])
