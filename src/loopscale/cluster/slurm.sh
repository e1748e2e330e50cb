
# --- the lines below are the same for every study ---
set -u -m  # -m: every process below has its own group, and receives SIGINT
job=$SLURM_JOB_ID run=$folder/jobs/$SLURM_JOB_ID temporary=/tmp/loopscale-$SLURM_JOB_ID
stopping='' head='' driver='' tender='' workers=()

say() { printf '%s %s\n' "$(date '+%F %T')" "$*"; }

stop() {  # argument: user, limit or problem; the driver saves its state and ends
  stopping=$1
  say "stopping: asked by $stopping"
  if [ -n "$driver" ]; then kill -INT -- "-$driver" 2> /dev/null; fi
}
trap 'stop user' INT TERM
trap 'stop limit' USR1  # from --signal above
trap 'stop problem' USR2  # from tend below

quit() {  # argument: exit code; removes the job's processes, its worker jobs, its token and its temporary files
  trap '' INT TERM USR1 USR2
  if [ -n "$tender" ]; then kill -KILL -- "-$tender" 2> /dev/null; fi
  if [ "$mode" = elastic ]; then end_worker_jobs; fi
  for pid in ${workers[@]+"${workers[@]}"} $head; do kill -TERM -- "-$pid" 2> /dev/null; done
  for pid in ${workers[@]+"${workers[@]}"} $head; do
    for _ in {1..100}; do kill -0 -- "-$pid" 2> /dev/null || break; sleep 0.1; done
    kill -KILL -- "-$pid" 2> /dev/null
  done
  timeout 30 srun --nodes="$SLURM_JOB_NUM_NODES" --ntasks="$SLURM_JOB_NUM_NODES" --ntasks-per-node=1 \
    rm -rf -- "$temporary" 2> /dev/null || rm -rf -- "$temporary"
  if flock --exclusive --nonblock 9; then rm -f -- "$temporary.lock"; fi  # else by the last worker job here
  rm -f -- "$run/token"
  if [ "$stopping" = limit ] && [ "$requeue" = 1 ] && [ "$1" = 3 ] && scontrol requeue "$job"; then
    say "time limit: the job is queued again and resumes the study"
    sleep 60  # Slurm ends the job
  fi
  code=$1
  [ "$stopping" != problem ] || code=1
  echo "$code" > "$run/exit"
  exit "$code"
}

finish() {  # wait for the driver, also through signals
  until wait "$driver"; code=$?; ! kill -0 "$driver" 2> /dev/null; do :; done
  wait "$driver"; code=$?
  driver=''
}

start_ray() {  # arguments: log file, command; Ray gives a host 30 s to join, so a slow host tries three times
  local log=$1 result
  shift
  for _ in 1 2 3; do
    "$@" > "$log" 2>&1 < /dev/null
    result=$?
    grep -q 'timed out during startup' "$log" || break
  done
  return "$result"
}

end_worker_jobs() {  # running worker jobs leave Ray by themselves, and waiting ones are removed
  scancel --quiet "--name=loopscale-worker-$job" --state=PENDING
  scancel --quiet "--name=loopscale-worker-$job" --signal=USR1 --batch
}

look() {  # argument: number of the look; writes the worker jobs and the drained hosts for worker_jobs.py
  until
    {
      echo "look $1"
      squeue --me --array --noheader "--name=loopscale-worker-$job" --format='job|%i|%A|%T|%N' &&
        sinfo --noheader --Node --states=drain --format='drained|%N'
    } > "$run/queue.part"
  do sleep 5; done
  mv -- "$run/queue.part" "$run/queue"
}

submit_workers() {  # argument: number of jobs
  for name in ${!SLURM_@} ${!SBATCH_@}; do [ "$name" = SLURM_CONF ] || unset "$name"; done
  sbatch --parsable "--job-name=loopscale-worker-$job" "--output=$run/worker-%A-%a.log" \
    "--array=1-$1${array_limit:+%$array_limit}" "$run/worker.sh" "$job"
}

tend() {  # starts and ends worker jobs, as worker_jobs.py says
  look 0
  ${here[@]+"${here[@]}"} "$python" -m loopscale.cluster.worker_jobs --address "$ip:$port" --queue "$run/queue" \
    "${elastic[@]}" 2>> "$run/worker_jobs.log" < /dev/null | while IFS=' ' read -r verb word; do
    case $verb in
      look) look "$word" ;;
      start) say "starts $word worker jobs: $( (submit_workers "$word") 2>&1)" ;;
      leave) say "ends worker job $word"; scancel --signal=USR1 --batch "$word" ;;
      cancel) say "removes worker job $word"; scancel "$word" ;;
      problem)
        [ ! -s "$run/worker-problem" ] || word=$(< "$run/worker-problem")  # the reason of a worker job
        say "$word"
        echo "$word" > "$run/problem"
        kill -USR2 $$ ;;
    esac
  done
}

mkdir -p -- "$run" && cd -- "$code" || { say "cannot use $folder or $code on $(hostname)"; exit 1; }
exec 9> "$temporary.lock" && flock --shared 9  # a worker job that leaves this host keeps the files of Ray's head
rm -f -- "$run/exit" "$run/problem" "$run/worker-problem"
export PYTHONPATH="$code${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1
export RAY_AUTH_MODE=token RAY_AUTH_TOKEN_PATH="$run/token" RAY_USAGE_STATS_ENABLED=0
rm -f -- "$run/token"
(umask 077 && od -An -N32 -tx1 /dev/urandom | tr -d ' \n' > "$run/token") || quit 1

here=() there=() step=()  # the words before a command: on this host, after srun, and the options of srun
case $runtime in
  apptainer)
    here=(apptainer exec ${gres:+--nv} --bind "$folder$mounts" ${container[@]+"${container[@]}"} "$image")
    there=("${here[@]}") ;;
  pyxis)
    step=("--container-image=$image" "--container-mounts=$folder:$folder,/tmp:/tmp$mounts"
      ${container[@]+"${container[@]}"})
    # Without its number of CPUs, Slurm 22.05 and newer may bind a step to one core.
    here=(srun --disable-status --overlap --nodes=1 --ntasks=1 "--cpus-per-task=${SLURM_CPUS_PER_TASK:-1}"
      "--nodelist=$SLURMD_NODENAME" "${step[@]}") ;;
esac

needed='import sys, importlib.util as u
missing = [name for name in ("ray", "torch", "mlflow") if not u.find_spec(name)]
sys.exit("there is no package " + missing[0] if missing else 0)'
if ! said=$(${here[@]+"${here[@]}"} "$python" -c "$needed" 2>&1 < /dev/null); then
  said="$python cannot run the study on $(hostname): ${said##*$'\n'}"
  said+="; correct \`setup\`, \`python\` or \`container\` in the cluster's file"
  say "$said"
  echo "$said" > "$run/problem"
  quit 2
fi

mapfile -t hosts < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
address=$(scontrol show node -o "${hosts[0]}" | grep -o ' NodeAddr=[^ ]*')
ip=$(getent ahostsv4 "${address#*=}" | awk 'NR == 1 {print $1}')
if [[ -z $ip || $ip == 127.* && (${#hosts[@]} -gt 1 || $mode == elastic) ]]; then
  own=$(hostname -I | awk '{print $1}') && ip=${own:-$ip}  # /etc/hosts may map a host's own name to loopback
fi
port=$((20000 + job % 10000))
ray=("$python" -m ray.scripts.scripts start --block --disable-usage-stats --object-store-memory=500000000)
size=("--num-cpus=$cpus" "--num-gpus=$gpus")
on_head=("${size[@]}")
[ "$mode" = gang ] || on_head=(--num-cpus=0 --num-gpus=0)

say "job $job on ${hosts[*]}; Ray at $ip:$port"
start_ray "$run/ray-${hosts[0]}.log" \
  ${here[@]+"${here[@]}"} "${ray[@]}" "${on_head[@]}" --head "--node-ip-address=$ip" "--port=$port" \
  "--ray-client-server-port=$((port + 10000))" "--node-name=${hosts[0]}" --include-dashboard=false \
  "--temp-dir=$temporary" &
head=$!
for _ in {1..240}; do
  (exec 3<> "/dev/tcp/$ip/$port") 2> /dev/null && break
  [ -z "$stopping" ] || quit 3
  kill -0 "$head" 2> /dev/null || { say "Ray did not start; see $run/ray-${hosts[0]}.log"; quit 1; }
  sleep 0.5
done
for host in ${hosts[@]+"${hosts[@]:1}"}; do  # one step per host, so that the loss of a host ends no other step
  start_ray "$run/ray-$host.log" \
    srun --no-kill --nodes=1 --ntasks=1 "--nodelist=$host" "--cpus-per-task=$cpus" ${mem:+"--mem=$mem"} \
    ${gres:+"--gpus-per-node=$gres"} ${step[@]+"${step[@]}"} ${there[@]+"${there[@]}"} \
    "${ray[@]}" "${size[@]}" "--address=$ip:$port" "--node-name=$host" &
  workers+=($!)
done

[ -z "$stopping" ] || quit 3
${here[@]+"${here[@]}"} "$python" -m loopscale.cluster.job_check --address "$ip:$port" --seconds "$seconds" \
  "${check[@]}" --problem "$run/problem" --hosts "${hosts[@]}" < /dev/null &
driver=$!
finish
[ -z "$stopping" ] || quit 3
[ "$code" != 1 ] || say "the check of the hosts has failed; see the lines above, and $run/ray-${hosts[0]}.log"
[ "$code" = 0 ] || quit "$code"

if [ "$mode" = elastic ]; then
  end_worker_jobs  # of this job before it was queued again
  echo "$ip:$port" > "$run/address"
  write_worker_job > "$run/worker.sh"
  tend &
  tender=$!
  disown "$tender"  # so that the shell prints nothing at its end
fi
${here[@]+"${here[@]}"} "${study[@]}" --address "$ip:$port" < /dev/null &
driver=$!
finish
say "the driver ended with code $code"
quit "$code"
