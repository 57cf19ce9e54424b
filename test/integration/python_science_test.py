"""numpy, torch and faiss of the distribution, as they are, on pool memory: what they say is what they say of DRAM, and nothing
is copied. The Python examples and the guide's programs, which use them, on two hosts of an emulated pool."""

import contextlib
import gc
import os
import re
import resource
import subprocess
import sys
import tempfile
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from testbed.emulated import EmulatedPool
from testbed.pool import region_id
from testbed.process import wait_until
from testbed.testing import BUILD, REPOSITORY, PoolTest, continue_with_science, import_cxlpool, main

PYTHON = continue_with_science()
cxlpool = import_cxlpool()

import faiss  # noqa: E402: there since the Python was changed.
import numpy  # noqa: E402
import torch  # noqa: E402

EXAMPLES = REPOSITORY / 'libpool/examples/python'
sys.path.append(str(EXAMPLES))
import shared_weights as weights_example  # noqa: E402
import vector_index as index_example  # noqa: E402

MiB = 1 << 20


@contextlib.contextmanager
def no_room_for(size):
    """Within, the process may get half of `size` more memory of its own: a copy of that size is a MemoryError."""
    [data] = re.findall(r'VmData:\s*(\d+) kB', Path('/proc/self/status').read_text())
    before = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (int(data) * 1024 + size // 2, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)


def address(array):
    return array.__array_interface__['data'][0]


class SciencePool(PoolTest):
    @classmethod
    def make_pool(cls, directory):
        return EmulatedPool(BUILD, directory, hosts={'host-a': [[1, 2, 3, 4]], 'host-b': [[1, 2, 3, 4]]})

    def run_on(self, host, *words):
        """What a Python program says there, as a process of its own."""
        environment = {**os.environ, 'CXLPOOL_SOCKET': str(self.pool.hosts[host].socket), 'PYTHONPATH': str(BUILD / 'libpool/python')}
        done = subprocess.run([PYTHON, *map(str, words)], capture_output=True, text=True, timeout=120, env=environment)
        self.assertEqual((done.returncode, done.stderr), (0, ''), words)
        return done.stdout

    def attach(self, name):
        self.pool.cli('region', 'attach', name, '--host', 'host-b', '--access', 'ro', '--wait')

    def release(self, name):
        self.pool.cli('region', 'release', name, '--detach-all', '--wait')
        wait_until(lambda: region_id(name) not in self.pool.regions(), 20, f'{name} is gone')


class LibrariesTest(SciencePool):
    SIZE = 128 * MiB

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        torch.set_num_threads(1)  # What a thread begins with would be counted as if it were a copy.
        faiss.omp_set_num_threads(1)
        cls.dram = numpy.random.default_rng(1).standard_normal(cls.SIZE // 4, numpy.float32)

    def setUp(self):
        super().setUp()
        pool = cxlpool.Pool(str(self.pool.hosts['host-a'].socket))
        self.memory = pool.allocate('256MiB', 'science', persistent=True).map(length=self.SIZE)
        memoryview(self.memory).cast('f')[:] = memoryview(self.dram)
        self.readable = pool.open('science', 'ro').map(length=self.SIZE)

    def tearDown(self):
        del self.memory, self.readable
        gc.collect()
        self.release('science')

    def test_a_copy_would_be_seen(self):
        with no_room_for(self.SIZE):
            with self.assertRaises(MemoryError):
                self.dram.copy()
            with self.assertRaisesRegex(RuntimeError, "can't allocate memory"):
                torch.from_numpy(self.dram).clone()

    def test_numpy(self):
        with no_room_for(self.SIZE):
            pool = numpy.frombuffer(self.memory, numpy.float32)
            self.assertEqual((address(pool), pool.nbytes), (self.memory.address, self.SIZE))
            self.assertTrue(pool.flags.writeable)
            self.assertTrue(numpy.array_equal(pool[::1024], self.dram[::1024]))
            for function in (numpy.sum, numpy.max, numpy.argmin, numpy.linalg.norm):
                self.assertEqual(function(pool), function(self.dram), function)
            self.assertEqual(pool @ self.dram, self.dram @ self.dram)
            weights, question = (array.reshape(8192, -1) for array in (pool, self.dram)), numpy.ones(4096, numpy.float32)
            first, second = (matrix @ question for matrix in weights)
            self.assertTrue(numpy.array_equal(first, second))
            numpy.add(pool, 1, out=pool)
            self.assertEqual(numpy.frombuffer(self.readable, numpy.float32)[-1], self.dram[-1] + numpy.float32(1))
            half = pool[:self.dram.size // 2]
            half.sort()
        self.assertTrue(numpy.array_equal(half, numpy.sort(self.dram[:half.size] + 1)))

    def test_torch(self):
        dram = torch.from_numpy(self.dram)
        with no_room_for(self.SIZE):
            pool = torch.frombuffer(self.memory, dtype=torch.float32)
            self.assertEqual(pool.data_ptr(), self.memory.address)
            question = torch.ones(16, 4096)
            self.assertTrue(torch.equal(question @ pool.view(8192, 4096).T, question @ dram.view(8192, 4096).T))
            self.assertTrue(torch.equal(torch.nn.functional.softmax(pool[:4096], 0), torch.nn.functional.softmax(dram[:4096], 0)))
            pool.mul_(2)
            self.assertEqual(torch.frombuffer(self.memory, dtype=torch.float32)[-1], dram[-1] * 2)
            with warnings.catch_warnings():
                warnings.simplefilter('ignore')  # That it must not be stored to.
                readable = torch.frombuffer(self.readable, dtype=torch.float32)
            self.assertEqual(readable.data_ptr(), self.readable.address)
            self.assertTrue(torch.equal(readable.view(8192, 4096) @ question[0], (dram.view(8192, 4096) @ question[0]) * 2))

    def test_faiss(self):
        dimensions = 64
        dram = self.dram.reshape(-1, dimensions)
        queries = dram[::len(dram) // 4] + numpy.float32(0.1)
        with no_room_for(self.SIZE):
            for memory in (self.memory, self.readable):
                pool = numpy.frombuffer(memory, numpy.float32).reshape(-1, dimensions)
                self.assertEqual(address(pool), memory.address)
                for metric in (faiss.METRIC_L2, faiss.METRIC_INNER_PRODUCT):
                    for first, second in zip(faiss.knn(queries, pool, 10, metric), faiss.knn(queries, dram, 10, metric)):
                        self.assertTrue(numpy.array_equal(first, second))
        index = faiss.IndexFlatL2(dimensions)
        index.add(pool[:20_000])
        for first, second in zip(index.search(queries, 10), faiss.knn(queries, dram[:20_000], 10)):
            self.assertTrue(numpy.array_equal(first, second))
        # What the guide says of it: its vectors are its own.
        own = faiss.rev_swig_ptr(index.get_xb(), 64)
        self.assertFalse(self.readable.address <= address(own) < self.readable.address + self.SIZE)

    def test_tensors_of_a_model(self):
        bf16 = torch.arange(6, dtype=torch.float32).to(torch.bfloat16).view(2, 3)
        with no_room_for(self.SIZE // 2):
            size = cxlpool.save_safetensors(self.memory, {'w': self.dram[:self.SIZE // 8].reshape(2, -1), 'none': numpy.zeros((0, 3)),
                                                          'bf16': (bf16.view(torch.int16).numpy(), 'BF16', bf16.shape)})
            model = cxlpool.safetensors(self.readable)
            self.assertEqual(model.size, size)
            w = numpy.frombuffer(model['w'].buffer, numpy.float32).reshape(model['w'].shape)
            self.assertEqual((address(w) - self.readable.address) % 64, 0)
            self.assertLess(address(w) - self.readable.address, 4096)
            self.assertTrue(numpy.array_equal(w[1], self.dram[self.SIZE // 16:self.SIZE // 8]))
        with warnings.catch_warnings():
            warnings.simplefilter('ignore')
            again = torch.frombuffer(model['bf16'].buffer, dtype=torch.bfloat16).view(model['bf16'].shape)
        self.assertTrue(torch.equal(again, bf16))
        for name, array, why in (('view', w[:, ::2], 'not in the order of C'), ('big', self.dram[:4].astype('>f4'), "elements '>f'")):
            with self.assertRaisesRegex(ValueError, why):
                cxlpool.save_safetensors(self.memory, {name: array})


class ExamplesTest(SciencePool):
    def test_weights_are_shared_by_two_hosts(self):
        """Written on one, served on both at once: what is said is what a model in DRAM says, and none has weights of its own."""
        for name, seed in (('one', 1), ('two', 2)):
            self.run_on('host-a', EXAMPLES / 'shared_weights.py', 'write', name, seed)
            self.attach(name)
        question = numpy.ones((1, weights_example.WIDTH), numpy.float32)
        in_dram = [weights_example.answer(weights_example.make(seed).values(), question) for seed in (1, 2)]
        serve = lambda host: self.run_on(host, EXAMPLES / 'shared_weights.py', 'serve', 'one', 'two')
        with ThreadPoolExecutor(2) as hosts:
            served = list(hosts.map(serve, ('host-a', 'host-b')))
        for printed in served:
            *answers, last = printed.splitlines()
            said = [re.fullmatch(r'(one|two): ([0-9.]+) in [0-9.]+ ms', line).groups() for line in answers]
            self.assertEqual([name for name, _ in said], ['one', 'two'] * 3)
            self.assertEqual(said[:2] * 3, said)
            self.assertEqual([text for _, text in said[:2]], [f'{mean:.6f}' for mean in in_dram])
            weights, own = map(int, re.fullmatch(r'(\d+) MiB of weights, (\d+) MiB of memory of my own', last).groups())
            self.assertEqual(weights, 2 * 72)
            self.assertLess(own, 60)
        for name in ('one', 'two'):
            self.release(name)

    def test_an_index_is_searched_on_the_other_host(self):
        self.run_on('host-a', EXAMPLES / 'vector_index.py', 'build', 'vectors', 50_000)
        self.attach('vectors')
        said = self.run_on('host-b', EXAMPLES / 'vector_index.py', 'search', 'vectors')
        self.assertGreater(float(re.match(r'([0-9.]+) of the nearest are found in 8 of 64 lists\n', said).group(1)), 0.9)
        self.release('vectors')

    def test_layers_are_trained_while_the_next_ones_come(self):
        """How much of the copying is hidden depends on what else the machine does, so it is printed. That the weights are those of
        a plain loop does not: else the program fails."""
        *ways, last = self.run_on('host-a', EXAMPLES / 'training_loop.py').splitlines()
        for line, way in zip(ways, ('one after the other', 'ahead'), strict=True):
            self.assertRegex(line, rf'^{way}: \d+\.\d{{3}} s, \d+\.\d{{3}} s of that waiting for copies$')
        self.assertRegex(last, '^-?\\d+ % of the copying was hidden, and the weights are those of the plain loop$')
        print(last)
        wait_until(lambda: not self.pool.regions(), 20, 'the Region is gone')

    def test_an_index_with_lists_that_are_short_or_empty(self):
        vectors = numpy.random.default_rng(1).standard_normal((40, 64), numpy.float32)
        index = {'vectors': vectors, 'ids': numpy.arange(100, 140), 'ends': numpy.array([0, 1, 8, 8, 40]), 'centroids': vectors[:5]}
        _, exact = faiss.knn(vectors[:7], vectors, 10)
        self.assertTrue(numpy.array_equal(index_example.search(index, vectors[:7], 10, 5), exact + 100))
        self.assertEqual(index_example.search(index, vectors[:1], 10, 1).tolist(), [[]])

    def test_the_guides_programs_run(self):
        text = (REPOSITORY / 'docs/libpool-python.md').read_text()
        programs = re.findall(r'^```python\n(.*?)^```$', text, re.M | re.S)
        self.assertEqual(len(programs), 5)
        said = []
        with tempfile.TemporaryDirectory() as directory:
            for program in programs:
                if "load('model')" in program:  # It has a model already: what the program before it made.
                    program = program.replace("'model'", "'my-model'")
                (Path(directory) / 'program.py').write_text(program)
                said.append(self.run_on('host-a', Path(directory) / 'program.py'))
        self.assertRegex(said[0], r'^regions/\S+ 268435456\n$')
        self.assertEqual(said[1], "{'made by': 'the guide'} [1024. 1024. 1024.]\n")
        self.assertRegex(said[2], r'program.py:\d+: size=768 MiB, count=6, average=128 MiB\n')
        self.assertEqual(said[3:], ['True 2 None\n', 'True\n'])
        self.release('my-model')


if __name__ == '__main__':
    main()
