#!/usr/bin/env bash
# Builds an image of Apache Kafka with the entry of apache/kafka, for machines that can pull none: from the Java that is
# installed and the jars that `--cluster process` resolves into the cache (or those of KAFKA_HOME). Nothing is downloaded.
# Usage: harness/image/build.sh [NAME]; the default name is brokerfall/kafka:VERSION.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)

version=$(sed -n 's/^pub const KAFKA: &str = "\(.*\)";$/\1/p' "$here/../src/cluster/process/mod.rs")
if [ -n "${KAFKA_HOME:-}" ]; then
  jars=$KAFKA_HOME/libs
else
  cache=${BROKERFALL_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/brokerfall}
  jars=$({ find "$cache/clusters" -maxdepth 1 -type d -name "kafka-$version-*" 2>/dev/null || true; } | head -n 1)
fi
if ! ls "$jars"/kafka_2.13-*.jar >/dev/null 2>&1; then
  echo "Apache Kafka $version is not in the cache (\`brokerfall run --cluster process broker-kill/live\` resolves it, or set KAFKA_HOME)" >&2
  exit 3
fi
name=${1:-brokerfall/kafka:$version}

jlink=${JAVA_HOME:+$JAVA_HOME/bin/}jlink
for tool in "$jlink" ldd docker; do
  command -v "$tool" >/dev/null || { echo "missing: $tool (jlink comes with a JDK; docker is the client)" >&2; exit 3; }
done

context=$(mktemp -d)
trap 'rm -rf "$context"' EXIT
root=$context/rootfs
cp -r "$here/rootfs" "$root"
# Apart from the rest, because the broker's user owns it.
owned=$context/owned
mkdir -p "$owned"/kafka/{libs,config} "$owned/data" "$root"/{bin,tmp,opt,etc/kafka/secrets,mnt/shared/config}
chmod 1777 "$root/tmp"

# What a broker needs of Java. java.desktop stands for java.beans, which the entry's YAML reader uses.
"$jlink" --output "$root/opt/java" --strip-debug --no-header-files --no-man-pages \
  --add-modules java.base,java.desktop,java.logging,java.management,java.naming,java.security.jgss,java.security.sasl,jdk.unsupported
# Windows, fonts and sound of java.desktop would bring a dozen libraries of the system along.
rm -f "$root"/opt/java/lib/lib{awt*,fontmanager,freetype,javajpeg,jawt,jsound,lcms,mlib_image,splashscreen}.so

# One order for ever: an archive of classes serves one class path only.
cp "$jars"/*.jar "$owned/kafka/libs/"
(cd "$owned/kafka/libs" && printf '%s\n' *.jar) | LC_ALL=C sort | sed 's|^|/opt/kafka/libs/|' | paste -sd: >"$owned/kafka/classpath"

# The shell, and every library that it and Java name, at the places where they are looked for; beside them those that only
# code loads: names of hosts, and what the compression libraries inside the jars ask for.
cp -L /bin/sh "$root/bin/sh"
libc=$(ldd "$root/bin/sh" | sed -n 's|.*=> \(/.*\)/libc\.so\.6 .*|\1|p')
{
  find "$root/opt/java" "$root/bin" -type f \( -name '*.so' -o -perm -u+x \) -print0 | xargs -0 ldd 2>/dev/null |
    sed -n 's|.*=> \(/[^ ]*\) .*|\1|p; s|^[[:space:]]*\(/[^ ]*ld-[^ ]*\) .*|\1|p'
  for library in libnss_files libnss_dns libresolv libpthread libdl librt; do ls "$libc/$library".so.* 2>/dev/null || true; done
} | sort -u | grep -v "^$root" | while read -r library; do
  mkdir -p "$root$(dirname "$library")"
  cp -L "$library" "$root$library"
done

# The classic builder, which every engine has.
DOCKER_BUILDKIT=0 docker build --quiet --build-arg KAFKA_VERSION="$(ls "$jars" | sed -n 's/^kafka_2\.13-\([0-9].*\)\.jar$/\1/p' | head -n 1)" \
  --tag "$name" --file "$here/Dockerfile" "$context" >/dev/null
docker image inspect --format "built $name ({{.Size}} bytes)" "$name"
