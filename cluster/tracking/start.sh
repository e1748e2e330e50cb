#!/usr/bin/env bash
# A tracking server for many users: MLflow on PostgreSQL. The server serves the artifacts, and every user has a password.
set -euo pipefail

usage() {
  cat <<'TEXT'
start.sh [--database URL] [--folder FOLDER] [--artifacts FOLDER|s3://...] [--names NAME,...] [--host HOST] [--port PORT]
         [--tls | --certificate FILE --key FILE | --plain]

  --database    postgresql+psycopg://USER@HOST:PORT/NAME   (or $TRACKING_DATABASE)
  --folder      the server's settings, and the artifacts without --artifacts      ./tracking  ($TRACKING_FOLDER)
  --artifacts   a folder, or s3://bucket/prefix      FOLDER/artifacts  ($TRACKING_ARTIFACTS)
  --names       the names and addresses of this machine in clients' URLs, without ports      ($TRACKING_NAMES)
  --host        the address to listen at      127.0.0.1  ($TRACKING_HOST)
  --tls         HTTPS with FOLDER/certificate.pem and FOLDER/key.pem; openssl makes them for --names if they are absent
  --certificate, --key     HTTPS with these files      ($TRACKING_CERTIFICATE, $TRACKING_KEY)
  --plain       HTTP at an address of the network, for a proxy with TLS before the server      ($TRACKING_PLAIN=1)
  --port        5000  ($TRACKING_PORT)
  --workers     processes of the server      2  ($TRACKING_WORKERS)
  --permission  a user's access to the records of others, READ or NO_PERMISSIONS      READ  ($TRACKING_PERMISSION)

Secrets come from the environment only. A name that ends in _FILE gives the secret as a file:
  PGPASSWORD                       of the database's user (write it in no URL: process lists show URLs)
  MLFLOW_AUTH_ADMIN_PASSWORD       of the user admin, who creates the other users; 12 characters or more
  MLFLOW_FLASK_SERVER_SECRET_KEY   a long random text, the same at every start
  AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, MLFLOW_S3_ENDPOINT_URL for a bucket

Needs mlflow[auth], psycopg[binary], and boto3 for a bucket. Clients set MLFLOW_TRACKING_USERNAME and ..._PASSWORD, and
for a certificate of --tls also MLFLOW_TRACKING_SERVER_CERT_PATH=FOLDER/certificate.pem.
TEXT
}

fail() { echo "start.sh: $1" >&2; exit 2; }

database=${TRACKING_DATABASE:-} folder=${TRACKING_FOLDER:-tracking} artifacts=${TRACKING_ARTIFACTS:-}
names=${TRACKING_NAMES:-} host=${TRACKING_HOST:-127.0.0.1} port=${TRACKING_PORT:-5000}
certificate=${TRACKING_CERTIFICATE:-} key=${TRACKING_KEY:-} plain=${TRACKING_PLAIN:-} tls=
workers=${TRACKING_WORKERS:-2} permission=${TRACKING_PERMISSION:-READ}
while [ $# -gt 0 ]; do
  case $1 in
    -h | --help) usage; exit 0 ;;
    --tls | --plain) printf -v "${1#--}" 1; shift ;;
    --database | --folder | --artifacts | --names | --host | --port | --workers | --permission | --certificate | --key)
      [ $# -gt 1 ] || fail "$1 has no value; see --help"
      printf -v "${1#--}" '%s' "$2"
      shift 2 ;;
    *) fail "there is no option $1; see --help" ;;
  esac
done

for secret in PGPASSWORD MLFLOW_AUTH_ADMIN_PASSWORD MLFLOW_FLASK_SERVER_SECRET_KEY AWS_SECRET_ACCESS_KEY; do
  file=${secret}_FILE
  if [ -n "${!file:-}" ]; then
    [ -r "${!file}" ] || fail "$file names ${!file}, which cannot be read"
    printf -v "$secret" '%s' "$(< "${!file}")"
    export "${secret?}"
  fi
done

case $database in
  postgresql+psycopg://*) ;;
  '') fail "no database; give --database postgresql+psycopg://USER@HOST:PORT/NAME" ;;
  *) fail "the database must be a postgresql+psycopg:// URL" ;;
esac
admin=${MLFLOW_AUTH_ADMIN_PASSWORD:-}
[ "${#admin}" -ge 12 ] ||
  fail "MLFLOW_AUTH_ADMIN_PASSWORD is not set, or is shorter than the 12 characters that MLflow asks for"
[ -n "${MLFLOW_FLASK_SERVER_SECRET_KEY:-}" ] || fail "MLFLOW_FLASK_SERVER_SECRET_KEY is not set; openssl rand -hex 32 makes one"
[ -n "$certificate" ] && [ -z "$key" ] && fail "--certificate needs --key; give both files"
case $host in
  localhost | 127.* | ::1) ;;
  *) [ -n "$tls$certificate$plain" ] ||
    fail "at $host, HTTP shows passwords to the network; give --tls, or --plain behind a proxy with TLS" ;;
esac
command -v mlflow > /dev/null || fail "there is no mlflow here; pip install 'mlflow[auth]' 'psycopg[binary]'"

# MLflow compares the whole Host header, with the port, and refuses unlisted names. Health checks use localhost.
allowed=
for name in ${names//,/ } localhost 127.0.0.1; do
  allowed+="${allowed:+,}$name,$name:$port"
done

mkdir -p -- "$folder"
folder=$(cd -- "$folder" && pwd)
if [ -n "$tls" ] && [ -z "$certificate" ]; then
  certificate=$folder/certificate.pem key=$folder/key.pem
  if [ ! -e "$certificate" ]; then
    [ -n "$names" ] || fail "--tls makes a certificate for names; give --names, or --certificate and --key"
    command -v openssl > /dev/null || fail "there is no openssl here; install openssl, or give --certificate and --key"
    subject=
    for name in ${names//,/ } localhost 127.0.0.1; do
      if [[ $name =~ ^[0-9.]+$|: ]]; then kind=IP; else kind=DNS; fi
      subject+="${subject:+,}$kind:$name"
    done
    (umask 077 && openssl req -x509 -newkey rsa:3072 -nodes -days 825 -subj "/CN=loopscale tracking" \
      -addext "subjectAltName=$subject" -addext basicConstraints=critical,CA:FALSE \
      -keyout "$key" -out "$certificate" 2> "$folder/openssl.log") ||
      fail "openssl made no certificate; see $folder/openssl.log"
    chmod 644 "$certificate"
  fi
fi
secure=()
if [ -n "$certificate" ]; then
  for file in "$certificate" "$key"; do [ -r "$file" ] || fail "$file cannot be read; correct --certificate or --key"; done
  # MLflow splits these options as a shell would.
  quoted() { printf "'%s'" "${1//\'/\'\\\'\'}"; }
  secure=(--uvicorn-opts "--ssl-certfile $(quoted "$certificate") --ssl-keyfile $(quoted "$key")")
fi

(
  umask 077
  # In Python's ini files % begins a reference, and %% stands for %.
  cat > "$folder/auth.ini" <<INI
[mlflow]
default_permission = ${permission}
database_uri = ${database//%/%%}
admin_username = admin
authorization_function = mlflow.server.auth:authenticate_request_basic_auth
# Without this cache the server hashes a password per request, and is three times slower. A changed password takes effect
# after a minute.
auth_cache_ttl_seconds = 60
INI
)

# Otherwise MLflow starts seven processes of 200 MiB each that judge chats.
export MLFLOW_SERVER_ENABLE_JOB_EXECUTION=${MLFLOW_SERVER_ENABLE_JOB_EXECUTION:-false}
export MLFLOW_AUTH_CONFIG_PATH=$folder/auth.ini MLFLOW_BACKEND_STORE_URI=$database
exec mlflow server --app-name basic-auth --host "$host" --port "$port" --workers "$workers" \
  --artifacts-destination "${artifacts:-$folder/artifacts}" --allowed-hosts "$allowed" ${secure[@]+"${secure[@]}"}
