"""Raw HTTP/2 over TLS: what a hostile client of the manager sends, and one that times its calls."""

import multiprocessing
import select
import socket
import ssl
import struct
import time

PREFACE = b'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n'
DATA, HEADERS, RST, SETTINGS, PING, GOAWAY, WINDOW = 0, 1, 3, 4, 6, 7, 8
END_STREAM, END_HEADERS, ACK = 1, 4, 1


def frame(kind, flags, stream, payload=b''):
    return struct.pack('>I', len(payload))[1:] + bytes([kind, flags]) + struct.pack('>I', stream) + payload


def text(value):
    """Of HPACK: without Huffman's code, up to 126 bytes."""
    value = value.encode()
    assert len(value) < 127
    return bytes([len(value)]) + value


def headers(stream, path, end=False, **more):
    """The beginning of a gRPC call; `more`: other headers, '_' for '-'."""
    fields = {':method': 'POST', ':scheme': 'https', ':path': path, ':authority': 'fm.cxlpool', 'te': 'trailers',
              'content-type': 'application/grpc', **{k.replace('_', '-'): v for k, v in more.items()}}
    block = b''.join(b'\x00' + text(k) + text(v) for k, v in fields.items())
    return frame(HEADERS, END_HEADERS | (END_STREAM if end else 0), stream, block)


def message(payload, compressed=False):
    return bytes([compressed]) + struct.pack('>I', len(payload)) + payload


def data(stream, payload, end=False):
    return frame(DATA, END_STREAM if end else 0, stream, payload)


def tls_context(pki, name):
    context = ssl.create_default_context(cafile=str(pki / 'ca.pem'))
    context.load_cert_chain(pki / f'{name}.pem', pki / f'{name}.key')
    context.set_alpn_protocols(['h2'])
    return context


class Connection:
    """One connection. Reads what comes while it sends: windows, and which streams have ended."""

    def __init__(self, port, context, timeout=20, source='127.0.0.1'):
        plain = socket.create_connection(('127.0.0.1', port), timeout=timeout, source_address=(source, 0))
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket = context.wrap_socket(plain, server_hostname='fm.cxlpool')
        self.buffer = b''
        self.ended, self.got_data = set(), set()
        self.window, self.initial, self.windows = 65535, 65535, {}
        self.closed = False
        self.socket.sendall(PREFACE + frame(SETTINGS, 0, 0) + frame(WINDOW, 0, 0, struct.pack('>I', 1 << 30)))

    def close(self):
        self.socket.close()

    def send(self, payload):
        try:
            self.socket.sendall(payload)
        except (OSError, ssl.SSLError):
            self.closed = True

    def read(self, timeout=0.0):
        """Takes in what is there, or comes within `timeout` seconds."""
        if self.closed:
            return
        try:
            if not self.socket.pending() and not select.select([self.socket], [], [], timeout)[0]:
                return
            piece = self.socket.recv(1 << 16)
        except (OSError, ssl.SSLError):
            piece = b''
        if not piece:
            self.closed = True
            return
        self.buffer += piece
        while len(self.buffer) >= 9:
            size = int.from_bytes(self.buffer[:3], 'big')
            if len(self.buffer) < 9 + size:
                return
            kind, flags = self.buffer[3], self.buffer[4]
            stream = int.from_bytes(self.buffer[5:9], 'big') & 0x7fffffff
            payload, self.buffer = self.buffer[9:9 + size], self.buffer[9 + size:]
            self.take(kind, flags, stream, payload)

    def take(self, kind, flags, stream, payload):
        if kind == SETTINGS and not flags & ACK:
            for at in range(0, len(payload), 6):
                name, value = struct.unpack('>HI', payload[at:at + 6])
                if name == 4:
                    self.windows = {k: w + value - self.initial for k, w in self.windows.items()}
                    self.initial = value
            self.send(frame(SETTINGS, ACK, 0))
        elif kind == PING and not flags & ACK:
            self.send(frame(PING, ACK, 0, payload))
        elif kind == WINDOW:
            more = int.from_bytes(payload, 'big')
            if stream == 0:
                self.window += more
            else:
                self.windows[stream] = self.windows.get(stream, self.initial) + more
        elif kind == GOAWAY:
            self.closed = True
        elif kind == DATA:
            self.got_data.add(stream)
        if kind == RST or kind in (DATA, HEADERS) and flags & END_STREAM:
            self.ended.add(stream)

    def send_body(self, stream, payload, limit=20.0):
        """Sends `payload` as the windows allow, until the stream has ended or nothing moves for `limit` seconds. How much
        went out."""
        sent, moved = 0, time.monotonic()
        while sent < len(payload) and stream not in self.ended and not self.closed:
            room = min(self.window, self.windows.get(stream, self.initial), 16384, len(payload) - sent)
            if room > 0:
                self.send(data(stream, payload[sent:sent + room], end=sent + room == len(payload)))
                sent, moved = sent + room, time.monotonic()
                self.window -= room
                self.windows[stream] = self.windows.get(stream, self.initial) - room
                self.read()
            elif time.monotonic() - moved > limit:
                break
            else:
                self.read(0.1)
        return sent

    def await_end(self, stream, limit=20.0):
        end = time.monotonic() + limit
        while stream not in self.ended and not self.closed and time.monotonic() < end:
            self.read(0.1)
        return stream in self.ended

    def call(self, stream, path, payload=b''):
        """Whether a unary call was answered."""
        self.send(headers(stream, path) + data(stream, message(payload), end=True))
        return self.await_end(stream) and stream in self.got_data


class Meter:
    """Somebody who makes a call every few milliseconds on one connection, in a process of its own, from the beginning of a
    `with` to its end. The first call has been answered once the body begins. `times`: milliseconds of each."""

    def __init__(self, port, context, path):
        fork = multiprocessing.get_context('fork')
        self.begun, self.stop, self.result, self.times = fork.Event(), fork.Event(), fork.Queue(), []
        self.process = fork.Process(target=self._run, args=(port, context, path))

    def __enter__(self):
        self.process.start()
        if not self.begun.wait(30):
            self.process.kill()
            raise TimeoutError('the first call was not answered within 30 s')
        return self

    def __exit__(self, *_):
        self.stop.set()
        self.times = self.result.get(timeout=30)
        self.process.join(10)

    def p99(self):
        """Of calls that were all answered."""
        assert -1 not in self.times, f'call {len(self.times)} was not answered'
        return sorted(self.times)[len(self.times) * 99 // 100]

    def _run(self, port, context, path):
        """Puts the times; -1, and nothing after it: a call that was not answered."""
        connection = Connection(port, context)
        times, stream = [], 1
        while not self.stop.is_set():
            began = time.monotonic()
            good = connection.call(stream, path)
            times.append((time.monotonic() - began) * 1000 if good else -1)
            if not good:
                break
            self.begun.set()
            stream += 2
            time.sleep(0.004)
        connection.close()
        self.result.put(times)
