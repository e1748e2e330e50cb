
# --- the lines below are the same for every study ---
set -u -m  # -m: every process below has its own group, and receives SIGINT
job=$SLURM_JOB_ID run=$folder/jobs/$SLURM_JOB_ID temporary=/tmp/loopscale-$SLURM_JOB_ID
stopping='' head='' driver='' workers=()

say() { printf '%s %s\n' "$(date '+%F %T')" "$*"; }

stop() {  # argument: user or limit; the driver saves its state and ends
  stopping=$1
  say "stopping: asked by $stopping"
  if [ -n "$driver" ]; then kill -INT -- "-$driver" 2> /dev/null; fi
}
trap 'stop user' INT TERM
trap 'stop limit' USR1  # from --signal above

quit() {  # argument: exit code; removes the job's processes, its token and its temporary files
  trap '' INT TERM USR1
  for pid in ${workers[@]+"${workers[@]}"} $head; do kill -TERM "$pid" 2> /dev/null; done
  for pid in ${workers[@]+"${workers[@]}"} $head; do
    for _ in {1..100}; do kill -0 "$pid" 2> /dev/null || break; sleep 0.1; done
    kill -KILL -- "-$pid" 2> /dev/null
  done
  timeout 30 srun --nodes="$SLURM_JOB_NUM_NODES" --ntasks="$SLURM_JOB_NUM_NODES" --ntasks-per-node=1 \
    rm -rf -- "$temporary" 2> /dev/null || rm -rf -- "$temporary"
  rm -f -- "$run/token"
  if [ "$stopping" = limit ] && [ "$requeue" = 1 ] && [ "$1" = 3 ] && scontrol requeue "$job"; then
    say "time limit: the job is queued again and resumes the study"
    sleep 60  # Slurm ends the job
  fi
  echo "$1" > "$run/exit"
  exit "$1"
}

finish() {  # wait for the driver, also through signals
  until wait "$driver"; code=$?; ! kill -0 "$driver" 2> /dev/null; do :; done
  wait "$driver"; code=$?
  driver=''
}

mkdir -p -- "$run" && cd -- "$code" || { say "cannot use $folder or $code on $(hostname)"; exit 1; }
rm -f -- "$run/exit"
export PYTHONPATH="$code${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1
export RAY_AUTH_MODE=token RAY_AUTH_TOKEN_PATH="$run/token" RAY_USAGE_STATS_ENABLED=0
rm -f -- "$run/token"
(umask 077 && od -An -N32 -tx1 /dev/urandom | tr -d ' \n' > "$run/token") || quit 1

mapfile -t hosts < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
address=$(scontrol show node -o "${hosts[0]}" | grep -o ' NodeAddr=[^ ]*')
ip=$(getent ahostsv4 "${address#*=}" | awk 'NR == 1 {print $1}')
if [[ -z $ip || $ip == 127.* && ${#hosts[@]} -gt 1 ]]; then  # /etc/hosts may map a host's own name to loopback
  own=$(hostname -I | awk '{print $1}') && ip=${own:-$ip}
fi
port=$((20000 + job % 10000))
ray=("$python" -m ray.scripts.scripts start --block --disable-usage-stats "--num-cpus=$cpus" "--num-gpus=$gpus"
  --object-store-memory=500000000)

say "job $job on ${hosts[*]}; Ray at $ip:$port"
"${ray[@]}" --head "--node-ip-address=$ip" "--port=$port" "--ray-client-server-port=$((port + 10000))" \
  "--node-name=${hosts[0]}" --include-dashboard=false "--temp-dir=$temporary" > "$run/ray-${hosts[0]}.log" 2>&1 &
head=$!
for _ in {1..240}; do
  (exec 3<> "/dev/tcp/$ip/$port") 2> /dev/null && break
  kill -0 "$head" 2> /dev/null || { say "Ray did not start; see $run/ray-${hosts[0]}.log"; quit 1; }
  sleep 0.5
done
for host in ${hosts[@]+"${hosts[@]:1}"}; do  # one step per host, so that the loss of a host ends no other step
  srun --no-kill --nodes=1 --ntasks=1 "--nodelist=$host" "--cpus-per-task=$cpus" ${mem:+"--mem=$mem"} \
    ${gres:+"--gpus-per-node=$gres"} "${ray[@]}" "--address=$ip:$port" "--node-name=$host" \
    > "$run/ray-$host.log" 2>&1 < /dev/null &
  workers+=($!)
done

[ -z "$stopping" ] || quit 3
"$python" -m loopscale.cluster.joined "$ip:$port" "$seconds" "${hosts[@]}" &
driver=$!
finish
[ -z "$stopping" ] || quit 3
[ "$code" = 0 ] || { say "Ray does not answer; see $run/ray-${hosts[0]}.log"; quit 1; }

"${study[@]}" --address "$ip:$port" < /dev/null &
driver=$!
finish
say "the driver ended with code $code"
quit "$code"
