from pathlib import Path

from kedge.client.kubeconfig_paths import path_to_change, paths_to_read


def test_the_file_to_change_is_the_one_kubectl_would_change(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    both = f"{first}:{second}"
    assert path_to_change("", tmp_path) == tmp_path / ".kube" / "config"
    assert path_to_change(str(first), tmp_path) == first
    assert path_to_change(both, tmp_path) == second
    first.touch()
    assert path_to_change(both, tmp_path) == first


def test_files_to_read_are_those_of_the_variable_else_the_usual_one(tmp_path: Path) -> None:
    usual = tmp_path / ".kube" / "config"
    assert paths_to_read("", tmp_path) == [usual]
    assert paths_to_read("a::b", tmp_path) == [Path("a"), Path("b")]
