# The workload. Its device is programmed when it starts, so it can use it right away.
for port in /run/fpga/*; do
    name=${port##*/}
    echo data > /dev/fpga-$name || exit 1
    echo "$name: bitstream $(cat $port/bitstream), driver $(cat $port/driver)"
done > /dev/termination-log
cat /dev/termination-log
