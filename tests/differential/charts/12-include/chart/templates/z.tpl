{{ define "ztpl" }}z{{ end }}kind: Z
