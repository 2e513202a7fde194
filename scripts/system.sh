#!/usr/bin/env bash
# Installs what the system lacks (Debian), or names it in one line. Usage: scripts/system.sh [venv|render|browser]...
set -u
missing=()
for need in "$@"; do
  case "$need" in
    venv) "${PYTHON:-python3}" -c 'import ensurepip, venv' 2>/dev/null || missing+=(python3-venv) ;;
    render) { ldconfig -p | grep -q 'libEGL\.so\.1'; } || missing+=(libegl1)
            compgen -G '/usr/lib/*/dri/swrast_dri.so' >/dev/null || compgen -G '/usr/lib/*/libgallium*' >/dev/null || missing+=(libgl1-mesa-dri) ;;
    browser) command -v chromium >/dev/null || missing+=(chromium) ;;
  esac
done
[ ${#missing[@]} -eq 0 ] && exit 0
as_root=""
if [ "$(id -u)" -ne 0 ]; then as_root="sudo -n"; fi
if command -v apt-get >/dev/null && ${as_root} true 2>/dev/null; then
  echo "installing from Debian: ${missing[*]}"
  log=$(mktemp)
  # Another apt may hold the lists' lock, which no option of apt waits for; the packages' lock it waits for itself.
  for _ in $(seq 60); do
    if ${as_root} apt-get update >"$log" 2>&1 &&
      ${as_root} apt-get -o DPkg::Lock::Timeout=300 install -y --no-install-recommends "${missing[@]}" >>"$log" 2>&1; then
      rm -f "$log"; exit 0
    fi
    grep -qi 'could not get lock\|unable to lock' "$log" || break
    sleep 5
  done
  tail -n 3 "$log" >&2
fi
echo "bcrl needs these system packages, please install them: apt-get install ${missing[*]}" >&2
exit 1
