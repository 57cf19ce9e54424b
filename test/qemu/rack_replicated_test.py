"""tools/demo --replicated on two QEMU machines: the manager that leads is killed while memory is online, and the other one finds it as
it was left."""

from testbed.demo import Demo
from testbed.rack import RackPool
from testbed.replicated import replicated
from testbed.testing import BUILD, PoolTest, main, require_qemu


class RackReplicatedTest(PoolTest):
    @classmethod
    def make_pool(cls, directory):
        require_qemu('etcd')
        # Longer than by default: the machines take processors from etcd meanwhile.
        return replicated(RackPool)(BUILD, directory, takeover='2500ms')

    def test_the_demo_holds(self):
        Demo(self.pool, emulated=False).hold(self)
        self.assert_pool_empty()


if __name__ == '__main__':
    main()
