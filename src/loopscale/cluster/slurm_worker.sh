
# --- the lines below are the same for every worker job ---
set -u -m
run=$folder/jobs/$1 temporary=/tmp/loopscale-$1 ray=''

say() { printf '%s %s\n' "$(date '+%F %T')" "job $SLURM_JOB_ID on $(hostname): $*"; }

leave() {  # argument: exit code; ends Ray, and removes the temporary files that no other job of the study uses here
  trap '' INT TERM USR1
  if [ -n "$ray" ]; then
    kill -TERM "$ray" 2> /dev/null
    for _ in {1..100}; do kill -0 "$ray" 2> /dev/null || break; sleep 0.1; done
    kill -KILL -- "-$ray" 2> /dev/null
  fi
  if flock --exclusive --nonblock 9; then rm -rf -- "$temporary" "$temporary.lock"; fi
  exit "$1"
}
trap 'say "leaves Ray: its time is over, or it is not needed"; leave 0' INT TERM USR1  # USR1 from --signal above

cd -- "$code" || { say "cannot use $code"; exit 1; }
exec 9> "$temporary.lock" && flock --shared 9
export PYTHONPATH="$code${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1
export RAY_AUTH_MODE=token RAY_AUTH_TOKEN_PATH="$run/token" RAY_USAGE_STATS_ENABLED=0
here=()
case $runtime in
  apptainer) here=(apptainer exec ${gres:+--nv} --bind "$folder$mounts" ${container[@]+"${container[@]}"} "$image") ;;
  pyxis) here=(srun --disable-status --overlap --nodes=1 --ntasks=1 "--cpus-per-task=${SLURM_CPUS_PER_TASK:-1}"
    "--container-image=$image"
    "--container-mounts=$folder:$folder,/tmp:/tmp$mounts" ${container[@]+"${container[@]}"}) ;;
esac

${here[@]+"${here[@]}"} "$python" -m loopscale.cluster.job_check --this-host "${check[@]}" \
  --problem "$run/worker-problem" 9>&- || leave 2
${here[@]+"${here[@]}"} "$python" -m ray.scripts.scripts start --block --disable-usage-stats "--address=$(< "$run/address")" \
  "--node-name=w-$SLURM_JOB_ID" "--num-cpus=$cpus" "--num-gpus=$gpus" --object-store-memory=500000000 9>&- &
ray=$!
say "joins Ray at $(< "$run/address")"
wait "$ray"
say "Ray has ended"
leave 1
