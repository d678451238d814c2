# The workload. Its device is already programmed when it starts.
for port in /run/fpga/*; do
    name=${port##*/}
    echo data > /dev/fpga-$name || exit 1
    echo "$name: bitstream $(cat $port/bitstream), driver $(cat $port/driver)"
done > /dev/termination-log
cat /dev/termination-log
