"""GGUF files for the tests: a reader written from the format's specification, ggml's docs/gguf.md."""

import struct

from checks import read

# Of each type's number: the values of a block, and its bytes.
BLOCKS = {0: (1, 4), 1: (1, 2), 30: (1, 2), 2: (32, 18), 6: (32, 22), 7: (32, 24), 8: (32, 34), 12: (256, 144), 13: (256, 176), 14: (256, 210)}
F32, F16, Q4_0, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K, Q6_K, BF16 = 0, 1, 2, 6, 7, 8, 12, 13, 14, 30


class Gguf:
    """A reader written from the format's specification."""
    SCALARS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}

    def __init__(self, path):
        self.data = read(path)
        self.at = 4
        self.magic, self.version = self.data[:4], self.scalar(4)
        tensors, keys = self.scalar(10), self.scalar(10)
        self.keys, self.types, self.tensors = {}, {}, {}
        for _ in range(keys):
            name = self.string()
            kind = self.scalar(4)
            if name in self.keys:
                raise ValueError("key %s twice" % name)
            self.keys[name], self.types[name] = self.value(kind), kind
        infos = []
        for _ in range(tensors):
            name, rank = self.string(), self.scalar(4)
            dims = [self.scalar(10) for _ in range(rank)]
            infos.append((name, dims, self.scalar(4), self.scalar(10)))
        begin = -(-self.at // 32) * 32
        self.end = begin
        for name, dims, kind, offset in infos:
            values, size = BLOCKS[kind]
            for dim in dims:
                size *= dim
            if dims[0] % values != 0:
                raise ValueError("%s: rows of %d in blocks of %d" % (name, dims[0], values))
            size //= values
            if offset % 32 != 0 or begin + offset < self.end or begin + offset + size > len(self.data):
                raise ValueError("%s at %d" % (name, offset))
            self.tensors[name] = (dims, kind, self.data[begin + offset:begin + offset + size])
            self.end = begin + offset + size

    def scalar(self, kind):
        value = struct.unpack_from(self.SCALARS[kind], self.data, self.at)[0]
        self.at += struct.calcsize(self.SCALARS[kind])
        return value

    def string(self):
        count = self.scalar(10)
        self.at += count
        return self.data[self.at - count:self.at].decode("utf-8")

    def value(self, kind):
        if kind == 8:
            return self.string()
        if kind == 9:
            of, count = self.scalar(4), self.scalar(10)
            return [self.value(of) for _ in range(count)]
        return self.scalar(kind)
