#!/usr/bin/env bash
# Requests per second of processor time, MQSim and Tidewater in turns on the same machine: random requests of 4 KiB at
# queue depth 32 on 64 GiB.
#
#   scripts/bench-mqsim.sh PATH/TO/MQSim [ROUNDS]    # a built checkout of CMU-SAFARI/MQSim; needs `make build` here
set -euo pipefail
# shellcheck source=scripts/toolchain.sh
. "$(dirname "${BASH_SOURCE[0]}")/toolchain.sh"
mqsim=$(cd "${1:?the folder of a built MQSim}" && pwd)
rounds=${2:-3}
tidewater=${TIDEWATER_BINARY:-$root/target/release/tidewater}
requests=1000000
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

# Its drive of 512 GiB, with an eighth of the blocks. Its runs begin with an empty drive; reads take what is mapped.
sed 's|<Block_No_Per_Plane>2048|<Block_No_Per_Plane>256|' "$mqsim/ssdconfig.xml" >drive.xml
# flow READS: a workload of one flow.
flow() {
    cat <<END
<?xml version="1.0" encoding="us-ascii"?>
<MQSim_IO_Scenarios><IO_Scenario><IO_Flow_Parameter_Set_Synthetic>
<Priority_Class>HIGH</Priority_Class>
<Device_Level_Data_Caching_Mode>WRITE_CACHE</Device_Level_Data_Caching_Mode>
<Channel_IDs>0,1,2,3,4,5,6,7</Channel_IDs><Chip_IDs>0,1,2,3</Chip_IDs><Die_IDs>0,1</Die_IDs><Plane_IDs>0,1</Plane_IDs>
<Initial_Occupancy_Percentage>50</Initial_Occupancy_Percentage>
<Working_Set_Percentage>90</Working_Set_Percentage>
<Synthetic_Generator_Type>QUEUE_DEPTH</Synthetic_Generator_Type>
<Read_Percentage>$1</Read_Percentage>
<Address_Distribution>RANDOM_UNIFORM</Address_Distribution>
<Percentage_of_Hot_Region>0</Percentage_of_Hot_Region>
<Generated_Aligned_Addresses>true</Generated_Aligned_Addresses>
<Address_Alignment_Unit>8</Address_Alignment_Unit>
<Request_Size_Distribution>FIXED</Request_Size_Distribution>
<Average_Request_Size>8</Average_Request_Size><Variance_Request_Size>0</Variance_Request_Size>
<Seed>798</Seed>
<Average_No_of_Reqs_in_Queue>32</Average_No_of_Reqs_in_Queue>
<Intensity>32768</Intensity>
<Stop_Time>0</Stop_Time>
<Total_Requests_To_Generate>$requests</Total_Requests_To_Generate>
</IO_Flow_Parameter_Set_Synthetic></IO_Scenario></MQSim_IO_Scenarios>
END
}
# seconds COMMAND...: of processor time.
seconds() {
    local TIMEFORMAT=%U
    { time "$@" >/dev/null 2>&1 </dev/null; } 2>&1
}
rate() { awk -v n="$requests" -v s="$1" 'BEGIN { printf "%d", n / s / 1000 }'; }

printf '%-22s %16s %20s %8s\n' 'thousand requests/s' MQSim Tidewater ratio
for case in 'writes 0 randwrite' 'reads 100 randread' '70/30 70 randrw,rwmixread=70'; do
    read -r name reads rw <<<"$case"
    flow "$reads" >load.xml
    for ((round = 1; round <= rounds; round++)); do
        theirs=$(rate "$(seconds "$mqsim/MQSim" -i drive.xml -w load.xml)")
        ours=$(rate "$(seconds "$tidewater" replay --capacity 64GiB \
            --job "rw=$rw,bs=4k,iodepth=32,size=64g,number_ios=$requests")")
        printf '%-22s %16s %20s %8s\n' "$name" "$theirs" "$ours" "$(awk "BEGIN { printf \"%.0f\", $ours / $theirs }")"
    done
done
