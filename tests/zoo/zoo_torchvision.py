"""Models of torchvision, small: classification, detection, segmentation, video, optical flow."""

from collections.abc import Callable
from typing import Any, Final

import torch
import zoo_torchvision_ops
from torch import Tensor, nn
from zoo_case import Case, Subject, normal, subject

zoo_torchvision_ops.provide()

import torchvision  # noqa: E402

CLASSIFIERS: Final[dict[str, tuple[int, dict[str, Any]]]] = {
    "densenet121": (32, {}),
    "efficientnet_b0": (32, {}),
    "googlenet": (64, {"aux_logits": True, "init_weights": False}),
    "mnasnet0_5": (32, {}),
    "mobilenet_v2": (32, {}),
    "mobilenet_v3_small": (32, {}),
    "regnet_x_400mf": (32, {}),
    "regnet_y_400mf": (32, {}),
    "resnet18": (32, {}),
    "shufflenet_v2_x0_5": (32, {}),
    "squeezenet1_1": (32, {}),
}


def _image(size: int) -> Callable[[], Tensor]:
    return normal(2, 3, size, size)


def _classifier(name: str, size: int, more: dict[str, Any]) -> Subject:
    return subject(torchvision.models.get_model(name, weights=None, num_classes=5, **more), _image(size))


def _vit() -> Subject:
    model = torchvision.models.VisionTransformer(32, 8, 2, 2, 32, 64, dropout=0.1, num_classes=5)
    return subject(model, _image(32))


def _maxvit() -> Subject:
    model = torchvision.models.MaxVit(
        input_size=(32, 32), stem_channels=16, partition_size=2, block_channels=[16, 32], block_layers=[1, 1],
        head_dim=16, stochastic_depth_prob=0.2, num_classes=5,
    )  # fmt: skip
    return subject(model, _image(32))


def _boxes(masks: bool, keypoints: bool) -> Callable[[], tuple[tuple[Any, ...], dict[str, Any]]]:
    def draw() -> tuple[tuple[Any, ...], dict[str, Any]]:
        images, targets = [], []
        for size in (64, 56):
            images.append(torch.rand(3, size, 64))
            corner = torch.rand(2, 2) * 20
            target = {
                "boxes": torch.cat([corner, corner + 10 + torch.rand(2, 2) * 20], 1),
                "labels": torch.tensor([1, 2]),
            }
            if masks:
                target["masks"] = (torch.rand(2, size, 64) > 0.5).to(torch.uint8)
            if keypoints:
                target["labels"] = torch.ones(2, dtype=torch.long)
                target["keypoints"] = torch.cat([corner[:, None].expand(2, 3, 2) + 5, torch.ones(2, 3, 1)], -1)
            targets.append(target)
        return (images, targets), {}

    return draw


def _with_small_head(name: str, size: int, wide: int) -> Subject:
    model = torchvision.models.get_model(name, weights=None)
    model.classifier = nn.Sequential(nn.Linear(wide, 16), nn.ReLU(inplace=True), nn.Dropout(), nn.Linear(16, 5))
    return subject(model, _image(size))


def _vgg() -> Subject:
    vgg = torchvision.models.vgg
    model = vgg.VGG(vgg.make_layers([8, "M", 16, "M", 16, 16, "M"], batch_norm=True), num_classes=5, init_weights=False)
    model.classifier = nn.Sequential(nn.Linear(16 * 7 * 7, 16), nn.ReLU(inplace=True), nn.Dropout(), nn.Linear(16, 5))
    return subject(model, _image(32))


def _resnet(**more: Any) -> Subject:
    resnet = torchvision.models.resnet
    return subject(resnet.ResNet(resnet.Bottleneck, [1, 1, 1, 1], num_classes=5, **more), _image(32))


def _convnext() -> Subject:
    from torchvision.models.convnext import CNBlockConfig, ConvNeXt

    return subject(ConvNeXt([CNBlockConfig(8, 16, 2), CNBlockConfig(16, None, 2)], 0.1, num_classes=5), _image(32))


def _swin(v2: bool) -> Subject:
    swin = torchvision.models.swin_transformer
    more = {"block": swin.SwinTransformerBlockV2, "downsample_layer": swin.PatchMergingV2} if v2 else {}
    model = swin.SwinTransformer([4, 4], 16, [2, 2], [2, 4], [4, 4], stochastic_depth_prob=0.2, num_classes=5, **more)
    return subject(model, _image(32))


def _inception() -> Subject:
    model = torchvision.models.inception_v3(weights=None, aux_logits=False, init_weights=False, num_classes=5)
    return subject(model, normal(2, 3, 80, 80))


def _detector(kind: str) -> Subject:
    detection = torchvision.models.detection
    more: dict[str, Any] = {"num_classes": 3, "min_size": 64, "max_size": 64}
    if kind in ("retinanet", "fcos"):
        backbone = detection.backbone_utils.resnet_fpn_backbone(backbone_name="resnet18", weights=None)
    else:
        backbone = nn.Sequential(
            nn.Conv2d(3, 16, 7, stride=4, padding=3), nn.BatchNorm2d(16), nn.ReLU(inplace=True),
            nn.Conv2d(16, 16, 3, stride=2, padding=1), nn.BatchNorm2d(16), nn.ReLU(inplace=True),
        )  # fmt: skip
        backbone.out_channels = 16
    levels = 5 if kind == "retinanet" else 1
    anchors = detection.anchor_utils.AnchorGenerator(((8, 16),) * levels, ((0.5, 1.0),) * levels)
    if kind == "retinanet":
        return Subject(detection.RetinaNet(backbone, anchor_generator=anchors, **more), _boxes(False, False))
    if kind == "fcos":
        return Subject(detection.FCOS(backbone, **more), _boxes(False, False))
    pools = {size: torchvision.ops.MultiScaleRoIAlign(["0"], size, 2) for size in (7, 14)}
    more |= {
        "box_roi_pool": pools[7],
        "rpn_anchor_generator": anchors,
        "rpn_post_nms_top_n_train": 20,
        "box_batch_size_per_image": 8,
    }
    more |= {"box_head": detection.faster_rcnn.TwoMLPHead(16 * 7 * 7, 16), "num_classes": None}
    more["box_predictor"] = detection.faster_rcnn.FastRCNNPredictor(16, 2 if kind == "keypoint_rcnn" else 3)
    if kind == "faster_rcnn":
        return Subject(detection.FasterRCNN(backbone, **more), _boxes(False, False))
    if kind == "mask_rcnn":
        more |= {"min_size": 32, "max_size": 32}  # roi_align in Python looks at every pixel of a mask
        more["mask_roi_pool"] = pools[14]
        more["mask_head"] = detection.mask_rcnn.MaskRCNNHeads(16, [8, 8], 1)
        more["mask_predictor"] = detection.mask_rcnn.MaskRCNNPredictor(8, 8, 3)
        return Subject(detection.MaskRCNN(backbone, **more), _boxes(True, False))
    more["keypoint_roi_pool"] = pools[14]
    more["keypoint_head"] = detection.keypoint_rcnn.KeypointRCNNHeads(16, [8, 8])
    more["keypoint_predictor"] = detection.keypoint_rcnn.KeypointRCNNPredictor(8, 3)
    return Subject(detection.KeypointRCNN(backbone, **more), _boxes(False, True))


def _ssdlite() -> Subject:
    model = torchvision.models.detection.ssdlite320_mobilenet_v3_large(
        weights=None, weights_backbone=None, num_classes=3
    )
    return Subject(model, _boxes(False, False))


def _segmenter(name: str) -> Subject:
    model = torchvision.models.get_model(name, weights=None, weights_backbone=None, num_classes=3)
    return subject(model, _image(64))


def _video(name: str, frames: int) -> Subject:
    return subject(torchvision.models.get_model(name, weights=None, num_classes=3), normal(1, 3, frames, 64, 64))


def _swin3d() -> Subject:
    model = torchvision.models.video.SwinTransformer3d(
        patch_size=[2, 4, 4], embed_dim=24, depths=[2, 2], num_heads=[2, 4], window_size=[2, 4, 4], num_classes=3
    )
    return subject(model, normal(1, 3, 4, 32, 32))


class Lists(nn.Module):
    """Turn a raft's list of flows into what a loss is made of, unchanged."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, one: Tensor, other: Tensor) -> Any:
        return self.model(one, other, num_flow_updates=2)


def _raft() -> Subject:
    return subject(
        Lists(torchvision.models.optical_flow.raft_small(weights=None)), normal(1, 3, 128, 128), normal(1, 3, 128, 128)
    )


def _case(name: str, build: Callable[[], Subject]) -> Case:
    return Case("torchvision", name, build)


CASES: Final = [
    *(_case(name, lambda n=name, s=size, m=more: _classifier(n, s, m)) for name, (size, more) in CLASSIFIERS.items()),
    _case("vit", _vit),
    _case("maxvit", _maxvit),
    _case("alexnet", lambda: _with_small_head("alexnet", 64, 256 * 6 * 6)),
    _case("vgg, batch norm", _vgg),
    _case("resnet, bottlenecks", _resnet),
    _case("resnext", lambda: _resnet(groups=8, width_per_group=4)),
    _case("wide_resnet", lambda: _resnet(width_per_group=96)),
    _case("convnext", _convnext),
    _case("swin", lambda: _swin(False)),
    _case("swin_v2", lambda: _swin(True)),
    _case("inception_v3", _inception),
    *(
        _case(kind, lambda k=kind: _detector(k))
        for kind in ("faster_rcnn", "mask_rcnn", "keypoint_rcnn", "retinanet", "fcos")
    ),
    _case("ssdlite320_mobilenet_v3_large", _ssdlite),
    *(
        _case(name, lambda n=name: _segmenter(n))
        for name in ("fcn_resnet50", "deeplabv3_mobilenet_v3_large", "lraspp_mobilenet_v3_large")
    ),
    _case("mc3_18", lambda: _video("mc3_18", 2)),
    _case("swin3d", _swin3d),
    _case("raft_small", _raft),
]  # fmt: skip
