#!/usr/bin/env bash
# A tracking server for many users: MLflow on PostgreSQL, artifacts served by the server, a password for everybody.
set -euo pipefail

usage() {
  cat <<'TEXT'
start.sh [--database URL] [--folder FOLDER] [--artifacts FOLDER|s3://...] [--names NAME,...] [--host HOST] [--port PORT]

  --database    postgresql+psycopg://USER@HOST:PORT/NAME   (or $TRACKING_DATABASE)
  --folder      for the server's settings, and artifacts if they have no other place    ./tracking  ($TRACKING_FOLDER)
  --artifacts   a folder, or s3://bucket/prefix      FOLDER/artifacts  ($TRACKING_ARTIFACTS)
  --names       what clients call this machine in their URLs, without ports      ($TRACKING_NAMES)
  --host        the address to listen at      0.0.0.0  ($TRACKING_HOST)
  --port        5000  ($TRACKING_PORT)
  --workers     processes that answer      2  ($TRACKING_WORKERS)
  --permission  what a user may do with what others have made, READ or NO_PERMISSIONS      READ  ($TRACKING_PERMISSION)

Secrets come from the environment only; each may be given as a file, by a name that ends in _FILE:
  PGPASSWORD                       of the database's user (it belongs in no URL: a process list shows it)
  MLFLOW_AUTH_ADMIN_PASSWORD       of the user admin, who makes the others; 12 characters or more
  MLFLOW_FLASK_SERVER_SECRET_KEY   any long random text, the same at every start
  AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, MLFLOW_S3_ENDPOINT_URL for a bucket

Needs mlflow[auth], psycopg[binary], and boto3 for a bucket. Clients set MLFLOW_TRACKING_USERNAME and ..._PASSWORD.
TEXT
}

wrong() { echo "start.sh: $1" >&2; exit 2; }

database=${TRACKING_DATABASE:-} folder=${TRACKING_FOLDER:-tracking} artifacts=${TRACKING_ARTIFACTS:-}
names=${TRACKING_NAMES:-} host=${TRACKING_HOST:-0.0.0.0} port=${TRACKING_PORT:-5000}
workers=${TRACKING_WORKERS:-2} permission=${TRACKING_PERMISSION:-READ}
while [ $# -gt 0 ]; do
  case $1 in
    -h | --help) usage; exit 0 ;;
    --database | --folder | --artifacts | --names | --host | --port | --workers | --permission)
      [ $# -gt 1 ] || wrong "$1 has no value; see --help"
      printf -v "${1#--}" '%s' "$2"
      shift 2 ;;
    *) wrong "there is no option $1; see --help" ;;
  esac
done

for secret in PGPASSWORD MLFLOW_AUTH_ADMIN_PASSWORD MLFLOW_FLASK_SERVER_SECRET_KEY AWS_SECRET_ACCESS_KEY; do
  file=${secret}_FILE
  if [ -n "${!file:-}" ]; then
    [ -r "${!file}" ] || wrong "$file names ${!file}, which cannot be read"
    printf -v "$secret" '%s' "$(< "${!file}")"
    export "${secret?}"
  fi
done

case $database in
  postgresql+psycopg://*) ;;
  '') wrong "no database; give --database postgresql+psycopg://USER@HOST:PORT/NAME" ;;
  *) wrong "the database is to be a postgresql+psycopg:// URL" ;;
esac
admin=${MLFLOW_AUTH_ADMIN_PASSWORD:-}
[ "${#admin}" -ge 12 ] ||
  wrong "MLFLOW_AUTH_ADMIN_PASSWORD is not set, or shorter than the 12 characters that MLflow asks for"
[ -n "${MLFLOW_FLASK_SERVER_SECRET_KEY:-}" ] || wrong "MLFLOW_FLASK_SERVER_SECRET_KEY is not set; openssl rand -hex 32 makes one"
command -v mlflow > /dev/null || wrong "there is no mlflow here; pip install 'mlflow[auth]' 'psycopg[binary]'"

# MLflow compares the whole Host header, port included, and refuses what is not listed; a health check comes by localhost.
allowed=
for name in ${names//,/ } localhost 127.0.0.1; do
  allowed+="${allowed:+,}$name,$name:$port"
done

mkdir -p -- "$folder"
folder=$(cd -- "$folder" && pwd)
(
  umask 077
  # In an ini file of Python's, % begins a reference and is doubled.
  cat > "$folder/auth.ini" <<INI
[mlflow]
default_permission = ${permission}
database_uri = ${database//%/%%}
admin_username = admin
authorization_function = mlflow.server.auth:authenticate_request_basic_auth
# Else every request is hashed for, and the server answers a third as fast. A changed password holds after a minute.
auth_cache_ttl_seconds = 60
INI
)

# Else seven more processes of 200 MiB each wait for chats to judge.
export MLFLOW_SERVER_ENABLE_JOB_EXECUTION=${MLFLOW_SERVER_ENABLE_JOB_EXECUTION:-false}
export MLFLOW_AUTH_CONFIG_PATH=$folder/auth.ini MLFLOW_BACKEND_STORE_URI=$database
exec mlflow server --app-name basic-auth --host "$host" --port "$port" --workers "$workers" \
  --artifacts-destination "${artifacts:-$folder/artifacts}" --allowed-hosts "$allowed"
