#!/bin/sh
# The first process of a node: prepares the container, and becomes systemd.
set -eu

# Mounts the cgroups again, as the cgroup namespace of this container shows them. Otherwise they are
# read-only, or they are the cgroups of the computer, where nodes would share their groups.
mount_cgroups() {
  root=/sys/fs/cgroup
  umount --recursive --lazy $root 2>/dev/null || true
  # Each line is <id>:<controllers>:<path>. Version 2 has the only line without controllers.
  if ! grep -qv '^0::' /proc/self/cgroup; then
    mount -t cgroup2 cgroup $root
    return
  fi
  mount -t tmpfs -o mode=755,size=4m tmpfs $root
  cut -d: -f2 /proc/self/cgroup | while read -r controllers; do
    folder=$root/${controllers#name=}
    case $controllers in
      "") continue ;;
      name=*) options=none,$controllers ;;
      *) options=$controllers ;;
    esac
    mkdir -p "$folder"
    mount -t cgroup -o "$options" cgroup "$folder"
    # Programs look for each controller under its own name.
    echo "$controllers" | tr , '\n' | while read -r controller; do
      [ -e "$root/$controller" ] || [ "${controllers#name=}" != "$controllers" ] || ln -s "$controllers" "$root/$controller"
    done
  done
}

# In a container that is not privileged, Docker mounts these read-only.
for mount in /sys /proc/sys; do
  mount -o remount,bind,rw $mount 2>/dev/null || true
done
mount_cgroups
mount --make-rshared /

# Each node needs an id of its own.
rm -f /etc/machine-id
systemd-machine-id-setup >/dev/null 2>&1 || true

exec /sbin/init
