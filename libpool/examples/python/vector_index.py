"""A vector index in the pool, built by one process and searched by any number of them, on every host: with faiss, as it is.

    vector_index.py build NAME [VECTORS]    makes the index in a Region of that name
    vector_index.py search NAME             searches it, and compares with a search of everything

faiss's own indices keep their vectors in memory of their own: faiss.IndexFlat.add copies them. faiss.knn searches an array where
it is. So the index is arrays: the vectors in the order of their lists, where each list ends, and the lists' centroids; and a
search is one of the centroids, then one of each list that is near.
"""

import sys

import cxlpool
import faiss
import numpy

DIMENSIONS, LISTS = 64, 64


def build(name, vectors=100_000):
    chance = numpy.random.default_rng(1)
    centers = chance.standard_normal((LISTS, DIMENSIONS), numpy.float32)
    data = centers[chance.integers(LISTS, size=int(vectors))]
    data += chance.standard_normal(data.shape, numpy.float32) * numpy.float32(0.4)

    clusters = faiss.Kmeans(DIMENSIONS, LISTS, niter=5, seed=1)
    clusters.train(data)
    _, nearest = faiss.knn(data, clusters.centroids, 1)
    ids = numpy.argsort(nearest[:, 0], kind='stable')
    ends = numpy.cumsum(numpy.bincount(nearest[:, 0], minlength=LISTS))

    region = cxlpool.allocate('256MiB', name, sharing='single-writer', persistent=True)
    with region.map() as memory:
        size = cxlpool.save_safetensors(memory, {'centroids': clusters.centroids, 'ends': ends, 'ids': ids, 'vectors': data[ids]})
    print(f'{name}: {len(data)} vectors in {size} bytes')


def open_index(name):
    """Its arrays, over the Region's memory."""
    tensors = cxlpool.safetensors(cxlpool.open(name, 'ro').map())
    types = {'F32': numpy.float32, 'I64': numpy.int64}
    return {name: numpy.frombuffer(t.buffer, types[t.dtype]).reshape(t.shape) for name, t in tensors.items()}


def search(index, queries, k, probes):
    """The ids of the k vectors that are nearest to each query, among those of the `probes` lists that are."""
    _, lists = faiss.knn(queries, index['centroids'], probes)
    answers = []
    for query, near in zip(queries, lists):
        found = []
        for number in near:
            begin, end = index['ends'][number - 1] if number else 0, index['ends'][number]
            distances, at = faiss.knn(query[None], index['vectors'][begin:end], k)
            found += [(distance, index['ids'][begin + i]) for distance, i in zip(distances[0], at[0]) if i >= 0]  # -1: no more.
        answers.append([id for _, id in sorted(found)[:k]])
    return numpy.array(answers)


def compare(name, k=10, probes=8):
    index = open_index(name)
    chance = numpy.random.default_rng(2)
    queries = index['vectors'][chance.integers(len(index['vectors']), size=50)]
    queries += chance.standard_normal(queries.shape, numpy.float32) * numpy.float32(0.1)

    by_lists = search(index, queries, k, probes)
    _, everything = faiss.knn(queries, index['vectors'], k)
    exact = index['ids'][everything]
    hits = sum(len(set(some) & set(all)) for some, all in zip(by_lists, exact))
    print(f'{hits / exact.size:.3f} of the nearest are found in {probes} of {LISTS} lists')


if __name__ == '__main__':
    {'build': build, 'search': compare}[sys.argv[1]](*sys.argv[2:])
